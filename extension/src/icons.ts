/** Our own drawings: a chip that is watched, and the same with the number of new failures. */

import { LabIcon } from '@jupyterlab/ui-components';

const CHIP =
  '<path fill-rule="evenodd" d="M7 4.5h10A2.5 2.5 0 0 1 19.5 7v10a2.5 2.5 0 0 1-2.5 2.5H7A2.5 2.5 0 0 1 4.5 17V7' +
  'A2.5 2.5 0 0 1 7 4.5zM7 6a1 1 0 0 0-1 1v10a1 1 0 0 0 1 1h10a1 1 0 0 0 1-1V7a1 1 0 0 0-1-1z"/>' +
  '<path d="M8 2h1.5v2H8zM11.25 2h1.5v2h-1.5zM14.5 2H16v2h-1.5zM8 20h1.5v2H8zM11.25 20h1.5v2h-1.5zM14.5 20H16v2h-1.5z' +
  'M2 8h2v1.5H2zM2 11.25h2v1.5H2zM2 14.5h2V16H2zM20 8h2v1.5h-2zM20 11.25h2v1.5h-2zM20 14.5h2V16h-2z"/>' +
  '<path fill-rule="evenodd" d="M7 12c1.3-2.2 3-3.3 5-3.3s3.7 1.1 5 3.3c-1.3 2.2-3 3.3-5 3.3S8.3 14.2 7 12z' +
  'm5-1.7a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4z"/>';

const MOST = 9;
const badges = new Map<string, LabIcon>();

export const logo = new LabIcon({ name: 'watcherml:logo', svgstr: drawing('') });

/** The logo with a number on it; more than nine are told as `9+`. */
export function badge(count: number): LabIcon {
  if (count < 1) {
    return logo;
  }
  const text = count > MOST ? `${MOST}+` : `${count}`;
  let icon = badges.get(text);
  if (!icon) {
    const mark =
      '<circle cx="17.5" cy="6.5" r="6.5" style="fill: var(--jp-error-color1)"/>' +
      '<text x="17.5" y="9.9" text-anchor="middle" font-size="9.5" font-weight="700" font-family="sans-serif"' +
      ` style="fill: #fff">${text}</text>`;
    icon = new LabIcon({ name: `watcherml:badge-${count > MOST ? 'many' : count}`, svgstr: drawing(mark) });
    badges.set(text, icon);
  }
  return icon;
}

function drawing(mark: string): string {
  return (
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
    `<g class="jp-icon3 jp-icon-selectable" fill="#616161">${CHIP}</g>${mark}</svg>`
  );
}
