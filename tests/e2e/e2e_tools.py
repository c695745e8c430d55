"""Handles on a kernel and on JupyterLab for the end-to-end tests."""

import os
from pathlib import Path

# The notebook that JupyterLab shows.
CURRENT = "window.jupyterapp.shell.currentWidget"


class Kernel:
    """A notebook that grows cell by cell in a real kernel."""

    def __init__(self, client):
        self.client = client

    async def run(self, source):
        """Execute a cell and return it with its outputs."""
        import nbformat

        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        await self.client.async_execute_cell(cell, len(self.client.nb.cells) - 1)
        return cell

    def widgets(self, css):
        """Return the ids of the widget models that have a CSS class."""
        return [key for key, state in self.client.widget_state.items() if css in state.get("_dom_classes", ())]

    def change(self, model, **state):
        """Do what a front end does when a person types into a field."""
        self._send(model, {"method": "update", "state": state, "buffer_paths": []})

    def click(self, model):
        """Do what a front end does when a person clicks a button."""
        self._send(model, {"method": "custom", "content": {"event": "click"}})

    def _send(self, model, data):
        message = self.client.kc.session.msg("comm_msg", {"comm_id": model, "data": data})
        self.client.kc.shell_channel.send(message)

    async def restart(self):
        """Kill the kernel's process and start a new one under the same client."""
        self.client.widget_state.clear()
        await self.client.km.restart_kernel(now=True)
        await self.client.kc.wait_for_ready(timeout=60)


def texts(cell, kind="text/plain"):
    """Return what a cell printed and displayed, as one text."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        elif output.output_type == "error":
            found.append(f"{output.ename}: {output.evalue}")
        else:
            found.append(output.data.get(kind, ""))
    return "\n".join(found)


class Lab:
    """One notebook, open in JupyterLab or in Notebook 7, in a folder of its own."""

    def __init__(self, page, errors, folder):
        self.page = page
        self.errors = errors
        self.folder = folder

    def command(self, name, **arguments):
        """Execute a command of JupyterLab."""
        return self.page.evaluate(
            "([name, arguments]) => window.jupyterapp.commands.execute(name, arguments)", [name, arguments]
        )

    def run_cell(self, number):
        """Execute one cell and wait until the kernel is idle again."""
        self.page.evaluate(f"() => {{ {CURRENT}.content.activeCellIndex = {number} }}")
        self.command("notebook:run-cell")
        self.page.wait_for_function(
            f"() => {CURRENT}.content.widgets[{number}].model.executionCount !== null"
            f" && {CURRENT}.sessionContext.session?.kernel?.status === 'idle'"
        )

    def restart_kernel(self):
        """Start a new kernel under the same notebook, and wait until it is idle."""
        self.page.evaluate(f"() => {CURRENT}.sessionContext.session.kernel.restart()")
        self.page.wait_for_function(f"() => {CURRENT}.sessionContext.session?.kernel?.status === 'idle'")

    def focused(self):
        """Return the first of our class names around what has the focus, without its prefix."""
        return self.page.evaluate(
            """() => {
                for (let at = document.activeElement; at; at = at.parentElement)
                    for (const one of at.classList)
                        if (one.startsWith('wml-') && one !== 'wml-panel') return one.slice(4)
                return ''
            }"""
        )

    def output(self, number):
        """Return the locator of a cell's output area."""
        return self.page.locator(f".jp-CodeCell >> nth={number}").locator(".jp-OutputArea").first

    def shot(self, locator, name):
        """Write what a locator shows to the folder WATCHERML_SHOTS, if that is set."""
        if not os.environ.get("WATCHERML_SHOTS"):
            return
        folder = Path(os.environ["WATCHERML_SHOTS"])
        folder.mkdir(parents=True, exist_ok=True)
        locator.screenshot(path=str(folder / f"{name}.png"))
