"use strict";
// What the page does: theme, tables that sort, figures that switch, enlarge and say their values. It reads without, too.
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const button = (text, press) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.addEventListener("click", press);
    return made;
  };

  // ---- Theme: what the system prefers, until a person chooses; kept where the browser lets a file keep something.
  const root = document.documentElement;
  const kept = (theme) => {
    try {
      if (theme) localStorage.setItem("proxlin-theme", theme);
      return localStorage.getItem("proxlin-theme");
    } catch {
      return null;
    }
  };
  const chosen = kept();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  function themes(toggle) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const now = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
    const other = () => (now() === "dark" ? "light" : "dark");
    const label = () => {
      toggle.textContent = other() === "dark" ? "Dark" : "Light";
      toggle.setAttribute("aria-label", `Switch to the ${other()} theme`);
    };
    toggle.addEventListener("click", () => {
      root.dataset.theme = other();
      kept(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    toggle.hidden = false;
    label();
  }

  // ---- Tables: a button in each heading sorts by its column, numbers as numbers, what is missing last.
  const numbers = { inf: Infinity, "-inf": -Infinity };
  const number = (text) => numbers[text] ?? Number(text);
  const missing = (text) => text === "" || text === "nan";

  function order(texts, sign) {
    const numeric = texts.every((text) => missing(text) || !Number.isNaN(number(text)));
    const compare = numeric ? (a, b) => Math.sign(number(a) - number(b)) || 0 : (a, b) => a.localeCompare(b, "en");
    return (i, j) =>
      missing(texts[i]) - missing(texts[j]) || (missing(texts[i]) ? 0 : sign * compare(texts[i], texts[j])) || i - j;
  }

  function sorts(table) {
    const headings = all("thead th", table), body = table.tBodies[0], rows = [...body.rows];
    headings.forEach((heading, column) => {
      const texts = rows.map((row) => row.cells[column].textContent.trim());
      const press = () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        headings.forEach((each) => each.setAttribute("aria-sort", "none"));
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        body.append(...rows.map((_, i) => i).sort(order(texts, up ? 1 : -1)).map((i) => rows[i]));
      };
      heading.setAttribute("aria-sort", "none");
      heading.replaceChildren(button(heading.textContent, press));
    });
  }

  // ---- Figures: several views are a switch, any view can be enlarged.
  function tools(figure) {
    const bar = document.createElement("div"), views = all(".view", figure);
    bar.className = "tools";
    if (views.length > 1) bar.append(switched(views));
    bar.append(button("Enlarge", () => enlarge(views.find((view) => !view.hidden))));
    figure.prepend(bar);
  }

  function switched(views) {
    const group = document.createElement("div");
    Object.assign(group, { className: "group", role: "group", ariaLabel: "Horizontal axis" });
    const show = (chosen) =>
      views.forEach((view, i) => {
        view.hidden = view !== chosen;
        group.children[i].setAttribute("aria-pressed", String(view === chosen));
      });
    group.append(...views.map((view) => button(view.dataset.label, () => show(view))));
    show(views[0]);
    return group;
  }

  let enlarge;
  function enlarging(dialog) {
    const stage = dialog.querySelector(".stage"), place = document.createComment("");
    let view = null, zoom = 1;
    const scale = (factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) => {
      const before = zoom;
      zoom = Math.min(8, Math.max(1, factor));
      const left = (stage.scrollLeft + x) * (zoom / before) - x, top = (stage.scrollTop + y) * (zoom / before) - y;
      view.style.width = `${100 * zoom}%`;
      stage.scrollTo(left, top);
    };
    const steps = { "+": () => scale(zoom * 1.4), "=": () => scale(zoom * 1.4), "-": () => scale(zoom / 1.4), 0: () => scale(1) };
    enlarge = (chosen) => {
      view = chosen;
      view.replaceWith(place);
      stage.append(view);
      dialog.showModal();
      scale(1);
    };
    dialog.addEventListener("close", () => {
      view.style.width = "";
      place.replaceWith(view);
    });
    dialog.addEventListener("keydown", (event) => steps[event.key]?.());
    all("[data-zoom]", dialog).forEach((each) =>
      each.addEventListener("click", steps[{ 1: "+", "-1": "-", 0: 0 }[each.dataset.zoom]]),
    );
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    stage.addEventListener("wheel", (event) => {
      const box = stage.getBoundingClientRect();
      event.preventDefault();
      scale(zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    stage.addEventListener("pointermove", (event) => {
      if (event.buttons === 1 && event.pointerType === "mouse") stage.scrollBy(-event.movementX, -event.movementY);
    });
  }

  // ---- Values: the point nearest to the pointer, or the one that the arrow keys step to, with its text beside it.
  function values(picture, readout) {
    const svg = picture.querySelector("svg"), dot = document.createElementNS(svg.namespaceURI, "circle");
    const boxes = {};
    let points = null, at = -1;
    const load = () => {
      points ??= JSON.parse(picture.querySelector("script").textContent).map(([panel, x, y, text]) => {
        const box = (boxes[panel] ??= svg.querySelector(`[id$="-panel-${panel}"]`).getBBox());
        return { box, text, x: box.x + x * box.width, y: box.y + (1 - y) * box.height };
      });
    };
    const show = (index) => {
      at = index;
      const { x, y, text } = points[at], seen = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y);
      svg.append(dot);
      readout.textContent = text;
      readout.hidden = false;
      picture.after(readout);
      const { width, height } = readout.getBoundingClientRect(), room = root.clientWidth - 8;
      readout.style.left = `${Math.max(8, seen.x + 14 + width > room ? seen.x - 14 - width : seen.x + 14)}px`;
      readout.style.top = `${seen.y + 14 + height > innerHeight - 8 ? seen.y - 14 - height : seen.y + 14}px`;
    };
    const shown = () => readout.previousElementSibling === picture && !readout.hidden;
    const hide = () => {
      if (!shown()) return;
      dot.remove();
      readout.hidden = true;
    };
    const nearest = (event) => {
      load();
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let best = -1, least = Infinity;
      points.forEach((point, i) => {
        const { box } = point, far = (point.x - x) ** 2 + (point.y - y) ** 2;
        const inside = x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
        if (inside && far < least) [best, least] = [i, far];
      });
      if (best < 0) hide();
      else show(best);
    };
    const name = (point) => point.text.split("\n", 1)[0];
    const turn = (by) => {
      const start = Math.max(at, 0);
      for (let i = start + by; i >= 0 && i < points.length; i += by) if (name(points[i]) !== name(points[start])) return i;
      return start;
    };
    const moves = {
      ArrowRight: () => Math.min(at + 1, points.length - 1),
      ArrowLeft: () => Math.max(at - 1, 0),
      ArrowDown: () => turn(1),
      ArrowUp: () => turn(-1),
      Home: () => 0,
      End: () => points.length - 1,
    };
    dot.setAttribute("class", "dot");
    dot.setAttribute("r", "4");
    picture.addEventListener("pointermove", nearest);
    picture.addEventListener("pointerdown", nearest);
    picture.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    picture.addEventListener("blur", hide);
    addEventListener("pointerdown", (event) => picture.contains(event.target) || hide(), { capture: true });
    addEventListener("scroll", () => shown() && show(at), { passive: true, capture: true });
    picture.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (!Object.hasOwn(moves, event.key)) return;
      event.preventDefault();
      load();
      show(moves[event.key]());
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const readout = document.querySelector(".readout");
    themes(document.querySelector(".theme"));
    all("table.sorts").forEach(sorts);
    enlarging(document.querySelector("dialog.large"));
    all("figure").forEach(tools);
    all(".picture:has(script)").forEach((picture) => values(picture, readout));
  });
})();
