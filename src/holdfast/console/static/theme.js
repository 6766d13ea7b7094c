/* Before the page is painted: the theme that somebody has chosen, so that it does not flash in the other. */
"use strict";
{
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
