/**
 * Panels of a notebook whose kernel is gone. An output of ours holds HTML beside the view of a widget; JupyterLab
 * chooses the view, and where there is no model for it, says so instead of showing the HTML. In a page that is open
 * when a kernel is killed, it leaves the view with buttons that nobody answers.
 */

import type { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Panel, Widget } from '@lumino/widgets';

const VIEW = 'application/vnd.jupyter.widget-view+json';
const OURS = 'class="wml-';
// The words of the renderer of widgets; it has no other sign of either.
const LOST = 'Error displaying widget';
const LOADING = 'Loading widget...';
// On what has lost its kernel, until a connection to the same one is there again.
const DISCONNECTED = 'jupyter-widgets-disconnected';
// A live view takes less; without a kernel it is waited for without an end.
const PATIENCE_MS = 1500;
const PAUSE_MS = 250;
const NOTE = 'As it was when it was shown; the kernel of that time is gone.';
const AGAIN = '%watcher plan RUN_ID shows a plan with its buttons again, %watcher recovery a campaign.';

/** Show the HTML of panels that no kernel keeps alive, in every notebook. */
export function keepFaces(notebooks: INotebookTracker): void {
  const keep = (panel: NotebookPanel) => {
    const faces = new Faces(panel);
    panel.disposed.connect(() => faces.dispose());
  };
  notebooks.forEach(keep);
  notebooks.widgetAdded.connect((_, panel) => keep(panel));
}

class Faces {
  constructor(panel: NotebookPanel) {
    this._panel = panel;
    this._observer = new MutationObserver(() => this._soon());
    // Of attributes only classes: a view that loses its kernel changes nothing else.
    const kinds = { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] };
    this._observer.observe(panel.content.node, kinds);
    panel.sessionContext.iopubMessage.connect((_, message) => {
      if (message.header.msg_type === 'update_display_data') {
        this._replace(message.content as unknown as IUpdate);
      }
    });
    this._soon();
  }

  dispose(): void {
    this._observer.disconnect();
    window.clearTimeout(this._timer);
    window.clearTimeout(this._next);
  }

  /** Look once for any number of changes: a training that prints changes a long notebook many times a second. */
  private _soon(): void {
    if (!this._waiting) {
      this._waiting = true;
      this._next = window.setTimeout(() => {
        this._waiting = false;
        this._look();
      }, PAUSE_MS);
    }
  }

  private _look(): void {
    if (this._panel.isDisposed) {
      return;
    }
    for (const cell of this._panel.content.widgets) {
      const area = cell.model.type === 'code' ? (cell as CodeCell).outputArea : null;
      for (let i = 0; area && i < area.model.length; i++) {
        const data = area.model.get(i).data;
        const html = VIEW in data ? text(data['text/html']) : '';
        const row = area.widgets[i];
        if (row && html.includes(OURS)) {
          this._settle(row as Panel, html);
        }
      }
    }
  }

  private _settle(row: Panel, html: string): void {
    const face = this._shown.get(row);
    const view = row.widgets.find(one => one !== face && one.hasClass('jp-OutputArea-output'));
    const words = view && view.node.childElementCount === 0 ? view.node.textContent ?? '' : '';
    const cutOff = !!view?.node.firstElementChild?.classList.contains(DISCONNECTED);
    if (view && (cutOff || words.startsWith(LOST) || (words === LOADING && this._waitedFor(view)))) {
      if (!face) {
        this._shown.set(row, this._show(row, html));
      }
      view.addClass('wml-lost');
    } else if (view && face && words !== LOADING) {
      this._shown.delete(row);
      face.dispose();
      view.removeClass('wml-lost');
    }
  }

  private _waitedFor(view: Widget): boolean {
    const now = Date.now();
    const since = this._since.get(view) ?? now;
    this._since.set(view, since);
    if (now - since >= PATIENCE_MS) {
      return true;
    }
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => this._soon(), PATIENCE_MS - (now - since) + 10);
    return false;
  }

  /** The HTML goes through the sanitizer, as that of a notebook by somebody else does. */
  private _show(row: Panel, html: string): Widget {
    const { rendermime } = this._panel.content;
    const face = rendermime.createRenderer('text/html');
    face.addClass('jp-OutputArea-output');
    face.addClass('wml-kept');
    row.addWidget(face);
    void face.renderModel(rendermime.createModel({ data: { 'text/html': html }, trusted: false })).then(() => {
      const note = document.createElement('div');
      note.className = 'wml-kept-note';
      note.textContent = /class="wml-(plan|progress)/.test(html) ? `${NOTE} ${AGAIN}` : NOTE;
      face.node.prepend(note);
    });
    return face;
  }

  /** Replace outputs that were there before this page was opened: JupyterLab knows their names only until then. */
  private _replace(update: IUpdate): void {
    const id = update.transient?.watcherml_model_id;
    for (const { model } of id ? this._panel.content.widgets : []) {
      const outputs = model.type === 'code' ? (model as CodeCell['model']).outputs : null;
      for (let i = 0; outputs && i < outputs.length; i++) {
        const view = outputs.get(i).data[VIEW] as { model_id?: string } | undefined;
        if (view?.model_id === id) {
          outputs.set(i, { output_type: 'display_data', data: update.data, metadata: update.metadata });
        }
      }
    }
  }

  private _next = 0;
  private _observer: MutationObserver;
  private _panel: NotebookPanel;
  private _shown = new WeakMap<Panel, Widget>();
  private _since = new WeakMap<Widget, number>();
  private _timer = 0;
  private _waiting = false;
}

interface IUpdate {
  data: { [type: string]: string };
  metadata: { [type: string]: string };
  transient?: { watcherml_model_id?: string };
}

function text(value: unknown): string {
  return Array.isArray(value) ? value.join('') : typeof value === 'string' ? value : '';
}
