"use strict";
// A click on the heading of a column sorts its table: ascending first, then descending. Numbers sort by value;
// missing values come last in both orders.
for (const table of document.querySelectorAll("table")) {
  const heads = Array.from(table.querySelectorAll("th"));
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (button === null) return;
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const keyed = Array.from(body.rows, (row) => [sortKey(row.cells[column]), row]);
      keyed.sort(([one], [other]) => compare(one, other, descending ? -1 : 1));
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

function sortKey(cell) {
  const key = cell.dataset.key ?? cell.textContent;
  if (key === "") return null;
  return cell.dataset.key !== undefined && Number.isFinite(Number(key)) ? Number(key) : key;
}

function compare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "number" && typeof other === "number") return sign * (one - other);
  return sign * String(one).localeCompare(String(other), "en", { numeric: true });
}
