/** What the sidebar knows: the stores, the one that is shown, what is in it, and which failures are new. */

import { IStateDB } from '@jupyterlab/statedb';
import { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, asProblem, IItem, IOverview, IProblem, IStore } from './api';

const SEEN = 'watcherml-lab:seen';
const OPEN_MS = 2_000;
const CLOSED_MS = 5_000;
const SLOWEST_MS = 60_000;

export class Model implements IDisposable {
  stores: IStore[] = [];
  overview: IOverview | null = null;
  problem: IProblem | null = null;
  /** Whether the server has answered once, be it with an error. */
  ready = false;
  /** Failures after this moment stand out in the list until the sidebar is left. */
  newAfter = Infinity;

  private readonly poll: Poll;
  private readonly seen: Record<string, number> = {};
  private readonly stopping = new Set<string>();
  private readonly _changed = new Signal<this, void>(this);
  private _store: IStore | null = null;
  private chosen = '';
  private watched = false;
  private told = '';

  /** `kernel` returns the id of the kernel of the notebook in front, if there is one. */
  constructor(
    readonly api: Api,
    private readonly kernel: () => string | undefined,
    private readonly state: IStateDB | null
  ) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.load(),
      frequency: { interval: CLOSED_MS, backoff: true, max: SLOWEST_MS },
      name: 'watcherml-lab:overview',
      standby: 'when-hidden'
    });
    void this.recall().then(() => this.poll.start());
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The store that is shown: the one that was picked, else that of the notebook in front, else the one before. */
  get store(): IStore | null {
    return this._store;
  }

  /** The id of the store that was picked; empty while the notebook decides. */
  get picked(): string {
    return this.chosen;
  }

  get isDisposed(): boolean {
    return this.poll.isDisposed;
  }

  dispose(): void {
    this.poll.dispose();
    Signal.clearData(this);
  }

  /** Ask now instead of at the next turn. */
  refresh(): void {
    void this.poll.refresh();
  }

  pick(store: string): void {
    this.chosen = store;
    this.refresh();
  }

  /** Tell whether somebody looks at the sidebar: then it is asked more often, and failures do not stay new. */
  watch(watched: boolean): void {
    if (this.watched === watched) {
      return;
    }
    this.watched = watched;
    const interval = watched ? OPEN_MS : CLOSED_MS;
    this.poll.frequency = { interval, backoff: true, max: SLOWEST_MS };
    this.newAfter = watched && this._store ? this.seenOf(this._store) : Infinity;
    this.see();
    this._changed.emit();
    this.refresh();
  }

  /** The failures that nobody has looked at, the newest first. */
  get fresh(): IItem[] {
    const after = this._store ? this.seenOf(this._store) : Infinity;
    return (this.overview?.failures.items ?? []).filter(one => one.at > after && one.marked);
  }

  isStopping(campaign: string): boolean {
    return this.stopping.has(campaign);
  }

  /** Ask a campaign to end; throws what the server answers. */
  async stop(store: string, campaign: string): Promise<void> {
    this.stopping.add(campaign);
    this._changed.emit();
    try {
      await this.api.stop(store, campaign);
    } catch (error) {
      this.stopping.delete(campaign);
      this._changed.emit();
      throw error;
    }
    this.refresh();
  }

  private async load(): Promise<void> {
    try {
      const stores = await this.api.stores();
      const before = this._store?.id;
      const store = this.choose(stores);
      const overview = store ? await this.api.overview(store.id) : null;
      this.stores = stores;
      this._store = store;
      this.overview = overview;
      this.problem = null;
      if (this.watched && store && store.id !== before) {
        this.newAfter = this.seenOf(store);
      }
    } catch (error) {
      this.problem = asProblem(error);
      this.ready = true;
      this.tell();
      throw error; // the poll asks less and less often
    }
    this.ready = true;
    for (const one of this.overview?.campaigns.items ?? []) {
      if (!one.stoppable) {
        this.stopping.delete(one.id);
      }
    }
    if (this.watched) {
      this.see();
    }
    this.tell();
  }

  private choose(stores: IStore[]): IStore | null {
    const kernel = this.kernel();
    return (
      stores.find(one => one.id === this.chosen) ??
      stores.find(one => kernel !== undefined && one.kernels.includes(kernel)) ??
      stores.find(one => one.id === this._store?.id) ??
      stores[stores.length - 1] ??
      null
    );
  }

  private seenOf(store: IStore): number {
    return this.seen[store.id] ?? store.since;
  }

  /** Note that everything up to now was looked at. */
  private see(): void {
    const newest = Math.max(0, ...(this.overview?.failures.items ?? []).map(one => one.at));
    if (this._store && newest > this.seenOf(this._store)) {
      this.seen[this._store.id] = newest;
      void this.state?.save(SEEN, { ...this.seen });
    }
  }

  private async recall(): Promise<void> {
    try {
      const kept = await this.state?.fetch(SEEN);
      for (const [id, at] of Object.entries((kept ?? {}) as Record<string, unknown>)) {
        if (typeof at === 'number') {
          this.seen[id] = at;
        }
      }
    } catch {
      // Without it every failure since the extension was loaded is new once more.
    }
  }

  private tell(): void {
    const now = JSON.stringify([this.stores, this._store, this.overview, this.problem, this.chosen]);
    if (now !== this.told) {
      this.told = now;
      this._changed.emit();
    }
  }
}
