"use strict";
// A click on the head of a column sorts its table; a second click turns the order around.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (up ? 1 : -1) * compare(key(a), key(b)));
      table.tBodies[0].append(...rows);
    });
  });
}

// Only the rows are shown that have every chosen value and every word that is searched for.
for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...form.nextElementSibling.querySelector("tbody").rows];
  const texts = new Map(rows.map((row) => [row, searchable(row.textContent)]));
  const show = () => {
    const words = form.querySelector("input").value.toLowerCase().split(/\s+/);
    const chosen = [...form.querySelectorAll("select")].filter((select) => select.value);
    for (const row of rows) {
      const text = texts.get(row);
      const fits = (select) =>
        row.cells[select.dataset.column].firstElementChild.textContent === select.value;
      row.hidden = !(chosen.every(fits) && words.every((word) => text.includes(word)));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    form.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
  };
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

// On a narrow screen a figure can be seen in its own size, and scrolls in its card.
for (const button of document.querySelectorAll("button.enlarge")) {
  const plot = button.closest("figure").querySelector(".plot");
  button.addEventListener("click", () => {
    const large = plot.classList.toggle("enlarged");
    button.setAttribute("aria-pressed", String(large));
    button.textContent = large ? "show all of it" : "enlarge";
  });
  button.hidden = false;
}

// A number with commas is also found without them.
function searchable(text) {
  const lower = text.toLowerCase();
  return `${lower} ${lower.replace(/(\d),(?=\d{3})/g, "$1")}`;
}

function compare(a, b) {
  const difference = Number(a) - Number(b);
  return Number.isNaN(difference) ? a.localeCompare(b, undefined, { numeric: true }) : difference;
}
