"""The look of a report: readable on a phone, in dark and in light, without colours and on paper."""

STYLESHEET = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f5f6f8; --ink: #1b1f24; --soft: #5a6470; --line: #d5dae0;
  --warn: #a33a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1e2328; --ink: #e6e9ec; --soft: #a2adb8; --line: #39424b;
    --warn: #ffb08a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.25rem; max-width: 76rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
}
h1 { margin: 0; font-size: 1.6rem; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.15rem; }
p { margin: .3rem 0 1rem; }
.soft, figcaption, th { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(2, 1fr); gap: .6rem; }
@media (min-width: 38rem) { .tiles { grid-template-columns: repeat(4, 1fr); } }
.tile { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 600; }
.tile span { display: block; font-size: .85rem; color: var(--soft); }
.gaps { border-left: 4px solid var(--warn); padding: .2rem .9rem; margin: 1rem 0; }
.gaps p { margin: .3rem 0; }
.plots {
  display: grid; gap: 1.6rem 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
}
figure { margin: 0; min-width: 0; }
figure h3 { margin: 0; font-size: 1rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .85rem; }
svg text { font-family: system-ui, sans-serif !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td {
  text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0;
  border-bottom: 1px solid var(--line);
}
th { font-weight: 500; white-space: nowrap; }
td:first-child { white-space: nowrap; }
th.number, td.number {
  text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums;
}
.warning td:last-child { color: var(--warn); }
.mark {
  display: inline-block; min-width: 1.4em; padding: 0 .3em; border-radius: .25em;
  color: #fff; font-weight: 700; text-align: center;
}
.legend {
  display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 0 0 1rem; padding: 0;
  list-style: none;
}
pre {
  white-space: pre-wrap; overflow-wrap: anywhere; background: var(--card); padding: .8rem;
  border-radius: .5rem;
}
code { overflow-wrap: anywhere; }
@media print {
  .tile, pre { border: 1px solid var(--line); }
  h2 { break-after: avoid; }
  figure { break-inside: avoid; }
}
"""
