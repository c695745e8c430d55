/**
 * What crosses between the server and this extension: the interfaces name the keys of watcherml/jupyter/stores.py,
 * rows.py and views.py, and a test compares them.
 */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

export type Kind = 'run' | 'failure' | 'campaign';

/** A store that a living kernel has registered; `since` is in seconds since 1970. */
export interface IStore {
  id: string;
  name: string;
  path: string;
  kernels: string[];
  since: number;
  exists: boolean;
  older: boolean;
}

/** A line of a list; `at` is in seconds since 1970, `marked` is what needs a look: an open failure, a running campaign. */
export interface IItem {
  kind: Kind;
  id: string;
  name: string;
  project: string;
  status: string;
  tone: string;
  detail: string;
  sentence: string;
  at: number;
  marked: boolean;
  stoppable: boolean;
}

export interface IList {
  total: number;
  items: IItem[];
}

export interface IOverview {
  exists: boolean;
  sentence: string;
  failures: IList;
  campaigns: IList;
  runs: IList;
}

export interface ILink {
  kind: Kind;
  id: string;
  label: string;
}

/** A page; `html` is a face of the report layer, which holds no script, and `live` tells whether it still changes. */
export interface IView {
  kind: Kind;
  id: string;
  title: string;
  html: string;
  links: ILink[];
  live: boolean;
  stoppable: boolean;
}

/** An error as every surface tells it. */
export interface IProblem {
  code: string;
  message: string;
  expected: string;
  got: string;
  remedy: string;
}

export class ApiError extends Error {
  constructor(readonly problem: IProblem) {
    super(words(problem));
  }
}

const PLACES: Record<Kind, string> = { run: 'runs', failure: 'failures', campaign: 'campaigns' };

/** The endpoints of the server extension. */
export class Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async stores(): Promise<IStore[]> {
    return (await this.ask<{ stores: IStore[] }>(['stores'])).stores;
  }

  overview(store: string): Promise<IOverview> {
    return this.ask<IOverview>(['stores', store, 'overview']);
  }

  view(store: string, kind: Kind, id: string): Promise<IView> {
    return this.ask<IView>(['stores', store, PLACES[kind], id]);
  }

  /** Ask a running campaign to end. The kernel has no part in it, so it may be busy. */
  async stop(store: string, campaign: string): Promise<void> {
    await this.ask<{ was: string }>(['stores', store, 'campaigns', campaign, 'stop'], 'POST');
  }

  private async ask<T>(path: string[], method = 'GET'): Promise<T> {
    const parts = path.map(encodeURIComponent);
    const url = URLExt.join(this.settings.baseUrl, 'watcherml', 'api', ...parts);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, { method }, this.settings);
    } catch {
      throw new ApiError(problem('The server does not answer', 'It is asked again in a moment.'));
    }
    const text = await response.text();
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = null;
    }
    if (response.ok && body !== null) {
      return body as T;
    }
    throw new ApiError(told(body) ?? missing(response.status));
  }
}

/** An error in one or two sentences. */
export function words(one: IProblem): string {
  const expected = one.expected ? `: expected ${one.expected}` : '';
  const got = one.got ? `${expected ? ';' : ':'} got ${one.got}` : '';
  return `${one.message}${expected}${got}.${one.remedy ? ` ${one.remedy}` : ''}`;
}

/** Any error as one of ours. */
export function asProblem(error: unknown): IProblem {
  return error instanceof ApiError ? error.problem : problem(`Something went wrong here (${String(error)})`);
}

function told(body: unknown): IProblem | null {
  const found = (body as { error?: IProblem } | null)?.error;
  return typeof found?.message === 'string' ? found : null;
}

function missing(status: number): IProblem {
  if (status === 404) {
    return problem(
      'The server extension of WatcherML is not loaded',
      'Install WatcherML into the environment of the Jupyter server and restart it.'
    );
  }
  const refused = status === 403 || status === 401;
  return problem(refused ? 'The server refused this' : `The server answered ${status}`, refused ? 'Log in again.' : '');
}

function problem(message: string, remedy = ''): IProblem {
  return { code: 'browser', message, expected: '', got: '', remedy };
}
