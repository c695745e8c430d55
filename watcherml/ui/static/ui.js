// Everything works without this file but the live parts: new lines of a campaign, lists that renew themselves, copying.
"use strict";

const REFRESH_MOST = 60; // seconds between two looks at a page where nothing changes

function copyButtons(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
}

function themeChoice() {
  const field = document.getElementById("theme");
  if (!field) return;
  const now = document.documentElement.dataset.theme || "auto";
  for (const one of field.querySelectorAll("input")) {
    one.checked = one.value === now;
    one.addEventListener("change", () => {
      const root = document.documentElement;
      if (one.value === "auto") delete root.dataset.theme;
      else root.dataset.theme = one.value;
      try {
        if (one.value === "auto") localStorage.removeItem("watcherml-theme");
        else localStorage.setItem("watcherml-theme", one.value);
      } catch {
        // The choice then lasts as long as the page.
      }
    });
  }
}

// What a person is looking into is not taken away: open parts, the focus, selected text.
function inUse(part) {
  const selection = getSelection();
  return (
    part.contains(document.activeElement) ||
    part.querySelector("details[open]") !== null ||
    (selection && !selection.isCollapsed && part.contains(selection.anchorNode))
  );
}

function refresh() {
  const parts = document.querySelectorAll("[data-refresh]");
  if (!parts.length) return;
  const least = Number(parts[0].dataset.refresh);
  let pause = least;
  const again = () => setTimeout(look, pause * 1000);
  async function look() {
    if (document.visibilityState !== "visible") return again();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        const newer = fresh.querySelectorAll("[data-refresh]");
        let changed = false;
        document.querySelectorAll("[data-refresh]").forEach((part, index) => {
          const other = newer[index];
          if (!other || other.innerHTML === part.innerHTML || inUse(part)) return;
          part.replaceChildren(...document.importNode(other, true).childNodes);
          copyButtons(part);
          changed = true;
        });
        pause = changed ? least : Math.min(pause * 1.5, REFRESH_MOST);
      }
    } catch {
      pause = REFRESH_MOST; // the server has ended; it may come back
    }
    again();
  }
  again();
}

// A browser keeps six connections to a server and a stream holds one, so pages that nobody looks at let go of theirs.
function follow() {
  const status = document.getElementById("live");
  if (!status) return;
  const face = document.getElementById("face");
  const trail = document.getElementById("trail");
  const body = (event) => JSON.parse(event.data);
  let source = null;
  let last = ""; // the last line's number: a new stream goes on after it
  let over = false;

  function open() {
    const address = new URL(status.dataset.stream, location.href);
    if (last) address.searchParams.set("after", last);
    source = new EventSource(address);
    source.addEventListener("trail", (event) => {
      last = event.lastEventId;
      trail.insertAdjacentHTML("beforeend", body(event).html);
      const words = trail.lastElementChild && trail.lastElementChild.querySelector(".told");
      status.textContent = words ? `Live: ${words.textContent}` : "Live.";
    });
    source.addEventListener("face", (event) => {
      if (!inUse(face)) face.innerHTML = body(event).html;
    });
    source.addEventListener("problem", (event) => {
      status.textContent = `Cannot be read at this moment: ${body(event).message}`;
    });
    source.addEventListener("end", (event) => {
      over = true;
      source.close();
      status.textContent = body(event).state === "ended" ? "The campaign has ended." : "The campaign is not running any more.";
    });
    source.onerror = () => {
      const again = source.readyState === EventSource.CONNECTING;
      status.textContent = again ? "The connection was lost; trying again." : "Not live any more. Load the page again to see what is new.";
    };
  }

  function look() {
    if (document.visibilityState !== "visible") source?.close();
    else if (!over && (!source || source.readyState === EventSource.CLOSED)) open();
  }

  document.addEventListener("visibilitychange", look);
  look();
}

copyButtons(document);
themeChoice();
refresh();
follow();
