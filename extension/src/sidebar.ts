/** The sidebar: what needs a look, then failures, campaigns and runs of one store, the newest first. */

import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { IItem, IList, IStore, Kind, words } from './api';
import { button, element, moment } from './dom';
import { badge, logo } from './icons';
import { Model } from './model';

export interface IActions {
  open(kind: Kind, id: string): void;
  stop(item: IItem): void;
}

const SECTIONS: ['failures' | 'campaigns' | 'runs', string, string][] = [
  ['failures', 'Failures', 'No run has failed.'],
  ['campaigns', 'Campaigns', 'No recovery was tried.'],
  ['runs', 'Runs', 'No run is recorded.']
];
const KINDS: Record<Kind, string> = { run: 'Run', failure: 'Failure', campaign: 'Campaign' };
const LOAD = '%load_ext watcherml';

export class Sidebar extends Widget {
  private readonly picker = element('select', { class: 'jp-mod-styled wml-Picker', 'aria-label': 'Store' });
  private readonly place = element('div', { class: 'wml-Place' });
  private readonly said = element('div', { class: 'wml-Said', role: 'status' });
  private readonly problem = element('div', { class: 'wml-Problem', role: 'alert' });
  private readonly empty = element('div', { class: 'wml-Empty' });
  private readonly lists = element('div', { class: 'wml-Lists' });
  private readonly parts = new Map<string, { count: HTMLElement; body: HTMLElement }>();

  constructor(
    private readonly model: Model,
    private readonly actions: IActions
  ) {
    super();
    this.id = 'watcherml-sidebar';
    this.addClass('wml-Sidebar');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'WatcherML');
    this.picker.addEventListener('change', () => model.pick(this.picker.value));
    const refresh = button('wml-Refresh jp-Button jp-mod-minimal', 'Look again', () => model.refresh(), '⟳');
    const title = element('h2', { class: 'wml-Title' }, 'WatcherML');
    const head = element('div', { class: 'wml-Head' }, title, refresh);
    this.node.append(head, this.picker, this.place, this.said, this.problem, this.empty, this.lists);
    for (const [key, name] of SECTIONS) {
      this.lists.append(this.section(key, name));
    }
    model.changed.connect(this.draw, this);
    this.draw();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.watch(true);
  }

  protected onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.model.watch(false);
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.model.watch(this.isVisible);
  }

  protected onBeforeDetach(message: Message): void {
    this.model.watch(false);
    super.onBeforeDetach(message);
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    const first = this.node.querySelector<HTMLElement>('.wml-Item, .wml-Refresh');
    first?.focus();
  }

  private section(key: string, name: string): HTMLElement {
    const count = element('span', { class: 'wml-Count' });
    const body = element('ul', { class: 'wml-List', 'aria-label': name });
    this.parts.set(key, { count, body });
    const summary = element('summary', { class: 'wml-Section' }, element('h3', {}, name), count);
    return element('details', { class: `wml-${name}`, open: '' }, summary, body);
  }

  private draw(): void {
    const { model } = this;
    this.drawTitle();
    this.drawPicker();
    const { store, overview, problem } = model;
    show(this.problem, problem ? words(problem) : '');
    this.place.hidden = !store;
    this.place.title = store?.path ?? '';
    this.place.replaceChildren(element('bdi', { dir: 'ltr' }, store?.path ?? ''));
    show(this.said, store && overview?.exists ? overview.sentence : '');
    this.drawEmpty(store);
    const filled = store !== null && overview !== null && overview.exists;
    this.lists.hidden = !filled;
    if (filled) {
      for (const [key, , none] of SECTIONS) {
        this.drawList(key, overview[key], none);
      }
    }
  }

  private drawTitle(): void {
    const count = this.model.fresh.length;
    const told = count === 1 ? '1 new failure' : `${count} new failures`;
    this.title.icon = count ? badge(count) : logo;
    this.title.caption = count ? `WatcherML: ${told}` : 'WatcherML';
    this.title.className = count ? 'wml-mod-new' : '';
  }

  private drawPicker(): void {
    const { stores, picked } = this.model;
    this.picker.hidden = stores.length < 2;
    const options = [{ id: '', name: 'Store of the notebook in front', path: '' }, ...stores];
    // Folders are often called alike; then only the whole path tells them apart.
    const twice = (name: string) => stores.filter(one => one.name === name).length > 1;
    const known = JSON.stringify(options.map(one => [one.id, one.name, one.path]));
    if (this.picker.dataset.known !== known) {
      this.picker.dataset.known = known;
      this.picker.replaceChildren(
        ...options.map(one => {
          const text = twice(one.name) ? `${one.name} (${one.path})` : one.name;
          return element('option', { value: one.id, title: one.path }, text);
        })
      );
    }
    this.picker.value = stores.some(one => one.id === picked) ? picked : '';
  }

  private drawEmpty(store: IStore | null): void {
    const { model } = this;
    this.empty.replaceChildren();
    if (!model.ready) {
      this.empty.append('Looking for stores…');
    } else if (model.problem === null && store === null) {
      this.empty.append(
        element('p', {}, 'No notebook uses WatcherML. Load it in a cell:'),
        element('code', {}, LOAD),
        element('p', {}, 'What the notebook records then appears here.')
      );
    } else if (store !== null && model.overview !== null && !model.overview.exists) {
      this.empty.append(
        element('p', {}, 'There is no store in this folder yet. The first recorded run makes one:'),
        element('code', {}, 'run = watcherml.init(config={…})')
      );
    }
    this.empty.hidden = !this.empty.hasChildNodes();
  }

  private drawList(key: string, list: IList, none: string): void {
    const part = this.parts.get(key);
    if (!part) {
      return;
    }
    part.count.textContent = list.total.toLocaleString();
    const focused = part.body.contains(document.activeElement)
      ? (document.activeElement as HTMLElement).dataset.key
      : undefined;
    const rows = list.items.map(one => this.row(one));
    if (list.total > list.items.length) {
      const rest = list.total - list.items.length;
      rows.push(element('li', { class: 'wml-Rest' }, `${rest.toLocaleString()} older: \`watcher ui\` shows them all.`));
    }
    if (!rows.length) {
      rows.push(element('li', { class: 'wml-Rest' }, none));
    }
    part.body.replaceChildren(...rows);
    if (focused !== undefined) {
      part.body.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  private row(item: IItem): HTMLElement {
    const isNew = item.kind === 'failure' && item.marked && item.at > this.model.newAfter;
    const prose = item.sentence || item.detail;
    const hints = [item.name, item.project, item.status, item.detail, item.sentence].filter(one => one);
    const open = element(
      'button',
      { type: 'button', class: 'wml-Item', title: hints.join('\n'), 'data-key': `${item.kind} ${item.id}` },
      element('span', { class: `wml-Dot wml-tone-${item.tone}`, 'aria-hidden': 'true' }),
      element('span', { class: 'wml-Name' }, item.name),
      isNew ? element('span', { class: 'wml-New' }, 'new') : null,
      moment(item.at),
      element('span', { class: 'wml-About' }, [item.status, item.project].filter(one => one).join(' · ')),
      prose ? element('span', { class: 'wml-Prose' }, prose) : null
    );
    open.setAttribute('aria-label', `${KINDS[item.kind]} ${hints.join(', ')}`);
    open.addEventListener('click', () => this.actions.open(item.kind, item.id));
    const row = element('li', { class: `wml-Row${item.marked ? ' wml-mod-marked' : ''}` }, open);
    if (item.stoppable) {
      row.append(this.stopButton(item));
    }
    return row;
  }

  private stopButton(item: IItem): HTMLElement {
    const asked = this.model.isStopping(item.id);
    const label = asked ? `Campaign ${item.name} was asked to stop` : `Stop campaign ${item.name}`;
    const made = button('wml-Stop', label, () => this.actions.stop(item), asked ? 'Stopping…' : 'Stop');
    made.dataset.key = `stop ${item.id}`;
    made.disabled = asked;
    return made;
  }
}

/** Set a line's text; without any it takes no room. */
function show(line: HTMLElement, text: string): void {
  line.hidden = !text;
  if (line.textContent !== text) {
    line.textContent = text;
  }
}
