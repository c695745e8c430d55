/** Making elements. Text enters as text, so that no name of a run can become markup. */

type Child = Node | string | null;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children.filter((one): one is Node | string => one !== null));
  return made;
}

export function button(className: string, label: string, action: () => void, text = label): HTMLButtonElement {
  const made = element('button', { type: 'button', class: className, title: label, 'aria-label': label }, text);
  made.addEventListener('click', action);
  return made;
}

/** A moment: the hour for today, the day for earlier ones; the whole of it is its title. */
export function moment(seconds: number): HTMLTimeElement {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const short = today
    ? at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
    : at.toLocaleDateString([], { month: 'short', day: 'numeric' });
  return element('time', { datetime: at.toISOString(), title: at.toLocaleString() }, short);
}
