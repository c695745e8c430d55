/** The plugins: the sidebar, its tabs and commands for both; and what panels of a saved notebook show. */

import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, InputDialog, IThemeManager, showDialog, WidgetTracker } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';

import { Api, asProblem, Kind, words } from './api';
import { keepFaces } from './faces';
import { logo } from './icons';
import { Model } from './model';
import { IPlace, Page, pageId } from './page';
import { Sidebar } from './sidebar';

namespace CommandIDs {
  export const show = 'watcherml:show';
  export const refresh = 'watcherml:refresh';
  export const open = 'watcherml:open';
  export const latest = 'watcherml:open-latest-failure';
  export const stop = 'watcherml:stop';
}

const KINDS: readonly string[] = ['run', 'failure', 'campaign'];

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'watcherml-lab:plugin',
  description: 'Runs, failures and recovery campaigns of the store that the notebook uses.',
  autoStart: true,
  // Other applications, such as Notebook 7, have no place for tabs: there nothing is added.
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, INotebookTracker, IThemeManager, IStateDB],
  activate
};

function activate(
  app: JupyterFrontEnd,
  shell: ILabShell | null,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  notebooks: INotebookTracker | null,
  themes: IThemeManager | null,
  state: IStateDB | null
): void {
  if (shell === null) {
    return;
  }
  const kernel = () => notebooks?.currentWidget?.sessionContext.session?.kernel?.id;
  const model = new Model(new Api(app.serviceManager.serverSettings), kernel, state);
  const pages = new WidgetTracker<Page>({ namespace: 'watcherml-pages' });
  const sidebar = new Sidebar(model, {
    open: (kind, id) => void app.commands.execute(CommandIDs.open, { store: model.store?.id ?? '', kind, id }),
    stop: item => void app.commands.execute(CommandIDs.stop, { store: model.store?.id ?? '', id: item.id })
  });
  shell.add(sidebar, 'left', { rank: 600, type: 'WatcherML' });
  addCommands(app, shell, model, pages, sidebar);
  follow(model, notebooks);
  themes?.themeChanged.connect(() => pages.forEach(page => page.paint()));
  restorer?.add(sidebar, sidebar.id);
  if (restorer) {
    void restorer.restore(pages, {
      command: CommandIDs.open,
      args: page => ({ ...page.place }),
      name: page => page.id
    });
  }
  for (const command of [CommandIDs.show, CommandIDs.latest, CommandIDs.stop, CommandIDs.refresh]) {
    palette?.addItem({ command, category: 'WatcherML' });
  }
}

/** Look at once when another notebook comes to the front, its kernel changes, or a cell has ended. */
function follow(model: Model, notebooks: INotebookTracker | null): void {
  NotebookActions.executed.connect(() => model.refresh());
  notebooks?.currentChanged.connect(() => model.refresh());
  notebooks?.widgetAdded.connect((_, panel) => {
    panel.sessionContext.kernelChanged.connect(() => model.refresh());
  });
}

function addCommands(
  app: JupyterFrontEnd,
  shell: ILabShell,
  model: Model,
  pages: WidgetTracker<Page>,
  sidebar: Sidebar
): void {
  const { commands } = app;
  const open = (place: IPlace) => {
    let page = pages.find(one => one.id === pageId(place));
    if (!page) {
      page = new Page(place, model, { open, stop: one => void stopCampaign(model, one) });
      void pages.add(page);
      shell.add(page, 'main', { type: 'WatcherML' });
    }
    shell.activateById(page.id);
  };
  commands.addCommand(CommandIDs.show, {
    label: 'Show WatcherML',
    caption: 'Runs, failures and recovery campaigns beside the notebook',
    icon: logo,
    execute: () => shell.activateById(sidebar.id)
  });
  commands.addCommand(CommandIDs.refresh, { label: 'Look at the Store Again', execute: () => model.refresh() });
  commands.addCommand(CommandIDs.open, {
    label: 'Open a Run, Failure or Campaign',
    isVisible: () => false,
    execute: args => {
      const { store, kind, id } = args;
      if (typeof store === 'string' && typeof id === 'string' && KINDS.includes(String(kind))) {
        open({ store, kind: kind as Kind, id });
      }
    }
  });
  commands.addCommand(CommandIDs.latest, {
    label: 'Open the Latest Failure',
    isEnabled: () => !!model.overview?.failures.items.length,
    execute: () => {
      const latest = model.overview?.failures.items[0];
      if (latest && model.store) {
        open({ store: model.store.id, kind: 'failure', id: latest.id });
      }
    }
  });
  commands.addCommand(CommandIDs.stop, {
    label: 'Stop a Running Campaign…',
    isEnabled: args => typeof args.id === 'string' || running(model).length > 0,
    execute: async args => {
      const id = typeof args.id === 'string' ? args.id : await choose(running(model));
      const store = typeof args.store === 'string' ? args.store : model.store?.id;
      if (id && store) {
        await stopCampaign(model, { store, kind: 'campaign', id });
      }
    }
  });
  model.changed.connect(() => {
    commands.notifyCommandChanged(CommandIDs.latest);
    commands.notifyCommandChanged(CommandIDs.stop);
  });
}

function running(model: Model): string[] {
  return (model.overview?.campaigns.items ?? []).filter(one => one.stoppable).map(one => one.id);
}

async function choose(ids: string[]): Promise<string | null> {
  if (ids.length < 2) {
    return ids[0] ?? null;
  }
  const chosen = await InputDialog.getItem({ title: 'Which campaign should end?', items: ids });
  return chosen.button.accept ? chosen.value : null;
}

/** Ask a person, then the server; the kernel has no part in it. */
async function stopCampaign(model: Model, place: IPlace): Promise<void> {
  const asked = await showDialog({
    title: 'Stop this campaign?',
    body: `${place.id}: the running trial is ended. What the campaign has found stays on record.`,
    buttons: [Dialog.cancelButton({ label: 'Go on' }), Dialog.warnButton({ label: 'Stop' })]
  });
  if (!asked.button.accept) {
    return;
  }
  try {
    await model.stop(place.store, place.id);
  } catch (error) {
    const buttons = [Dialog.okButton({ label: 'Close' })];
    await showDialog({ title: 'The campaign was not stopped', body: words(asProblem(error)), buttons });
  }
}

const faces: JupyterFrontEndPlugin<void> = {
  id: 'watcherml-lab:faces',
  description: 'Shows the HTML of a saved panel where no kernel keeps its widget alive.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, notebooks: INotebookTracker) => keepFaces(notebooks)
};

export default [plugin, faces];
