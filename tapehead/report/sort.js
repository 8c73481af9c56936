
"use strict";
// A click on a column's name, or Enter or Space on it, sorts the table by that column; another one turns the order round.
// On a phone, where a row's cells stand below each other, each has the name of its column beside it.
const key = (row, column) => {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  if (value === undefined || value === "") return cell.textContent.trim().toLowerCase();
  const number = Number(value.replace("inf", "Infinity"));
  return Number.isNaN(number) ? value.toLowerCase() : number;
};
const compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b || 0;
  return String(a).localeCompare(String(b), "en", { numeric: true });
};
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.tHead.rows[0].cells];
  for (const row of table.tBodies[0].rows) {
    headers.forEach((header, column) => (row.cells[column].dataset.label = header.textContent));
  }
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const turned = header.getAttribute("aria-sort") === "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", turned ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => (turned ? compare(b, a) : compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
