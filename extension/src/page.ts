/** A run, failure or campaign as a tab: the report's page in a frame that runs no script, in the colours of the theme. */

import { Poll } from '@lumino/polling';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { asProblem, ILink, IView, Kind, words } from './api';
import { button, element } from './dom';
import { logo } from './icons';
import { Model } from './model';

export interface IPlace {
  store: string;
  kind: Kind;
  id: string;
}

export interface IPageActions {
  open(place: IPlace): void;
  stop(place: IPlace): void;
}

const LIVE_MS = 2_000;
const LONGEST = 60;
const NAMES: Record<Kind, string> = { run: 'Run', failure: 'Failure', campaign: 'Campaign' };
// Nothing in the frame is fetched: pictures stand in the page as data.
const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";
const SHELL =
  `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" ` +
  `content="${POLICY}"><style></style></head><body></body></html>`;

export class Page extends Widget {
  private readonly head = element('div', { class: 'wml-PageHead', role: 'toolbar', 'aria-label': 'Related' });
  private readonly problem = element('div', { class: 'wml-Problem', role: 'alert', hidden: '' });
  // Without allow-scripts nothing in it can act; with allow-same-origin it can be painted anew without losing its place.
  private readonly frame = element('iframe', { sandbox: 'allow-same-origin', class: 'wml-Frame', tabindex: '0' });
  private readonly poll: Poll;
  private view: IView | null = null;

  constructor(
    readonly place: IPlace,
    private readonly model: Model,
    private readonly actions: IPageActions
  ) {
    super();
    this.id = pageId(place);
    this.addClass('wml-Page');
    this.title.icon = logo;
    this.title.closable = true;
    this.call(place.id);
    this.frame.addEventListener('load', () => this.paint());
    this.frame.srcdoc = SHELL;
    this.node.append(this.head, this.problem, this.frame);
    this.poll = new Poll({
      auto: false,
      factory: () => this.load(),
      frequency: { interval: LIVE_MS, backoff: true, max: 60_000 },
      name: `watcherml-lab:page-${this.id}`,
      standby: () => document.hidden || !this.isVisible
    });
    model.changed.connect(this.drawHead, this);
    void this.poll.start();
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.poll.dispose();
      this.model.changed.disconnect(this.drawHead, this);
      super.dispose();
    }
  }

  /** Ask again, now. */
  refresh(): void {
    void this.poll.refresh();
  }

  /** Put the content and the theme's colours into the frame; folds that were open stay so. */
  paint(): void {
    const page = this.frame.contentDocument;
    if (!page?.body || !page.head) {
      return;
    }
    const style = page.head.querySelector('style');
    if (style) {
      style.textContent = colours();
    }
    const html = this.view?.html ?? '';
    if (page.body.dataset.shown !== html) {
      const open = folds(page).map(one => one.open);
      page.body.innerHTML = html;
      page.body.dataset.shown = html;
      folds(page).forEach((one, index) => (one.open = open[index] ?? one.open));
    }
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.refresh();
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    (this.head.querySelector('button') ?? this.frame).focus();
  }

  private async load(): Promise<void> {
    const { store, kind, id } = this.place;
    let view: IView;
    try {
      view = await this.model.api.view(store, kind, id);
    } catch (error) {
      this.problem.replaceChildren(
        element('span', {}, words(asProblem(error))),
        button('wml-Link', 'Try again', () => this.refresh())
      );
      this.problem.hidden = false;
      throw error; // the poll asks less and less often
    }
    if (this.isDisposed) {
      return;
    }
    this.view = view;
    this.problem.hidden = true;
    this.call(view.title);
    this.drawHead();
    this.paint();
    if (!view.live) {
      void this.poll.stop();
    }
  }

  /** Set the name of the tab. JupyterLab shows it in places that have no end, so that a long one is cut here. */
  private call(name: string): void {
    const whole = `${NAMES[this.place.kind]} ${name}`;
    this.title.label = whole.length > LONGEST ? `${whole.slice(0, LONGEST)}…` : whole;
    this.title.caption = whole;
    this.frame.title = whole;
  }

  private drawHead(): void {
    const { view, place } = this;
    if (view === null) {
      return;
    }
    const stopping = this.model.isStopping(place.id);
    const known = JSON.stringify([view.title, view.links, view.stoppable, stopping]);
    if (this.head.dataset.known === known) {
      return;
    }
    this.head.dataset.known = known;
    const title = element('span', { class: 'wml-PageTitle', title: view.title }, view.title);
    this.head.replaceChildren(title, ...view.links.map(one => this.link(one)));
    if (view.stoppable) {
      const text = stopping ? 'Stopping…' : 'Stop';
      const stop = button('wml-Stop', 'Stop this campaign', () => this.actions.stop(place), text);
      stop.disabled = stopping;
      this.head.append(stop);
    }
  }

  private link(one: ILink): HTMLElement {
    const { store } = this.place;
    const made = button('wml-Link', one.label, () => this.actions.open({ store, kind: one.kind, id: one.id }));
    made.title = `${one.label}: ${one.id}`;
    return made;
  }
}

/** The id of the tab of a page: one place has one tab. */
export function pageId(place: IPlace): string {
  return `watcherml-${place.store}-${place.kind}-${place.id}`;
}

function folds(page: Document): HTMLDetailsElement[] {
  return Array.from(page.querySelectorAll('details'));
}

function colours(): string {
  const found = getComputedStyle(document.body);
  const value = (name: string, fallback: string) => found.getPropertyValue(name).trim() || fallback;
  const scheme = document.body.dataset.jpThemeLight === 'false' ? 'dark' : 'light';
  return (
    `:root{color-scheme:${scheme}}` +
    `body{margin:0;padding:16px 20px 32px;background:${value('--jp-layout-color1', 'Canvas')};` +
    `color:${value('--jp-ui-font-color1', 'CanvasText')};font-family:${value('--jp-ui-font-family', 'sans-serif')}}` +
    `summary:focus-visible{outline:2px solid ${value('--jp-brand-color1', 'Highlight')};outline-offset:2px}`
  );
}
