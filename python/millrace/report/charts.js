// Charts of the report pages, by uPlot: axes, keys, a hint at the pointer, zoom by drag.
// Texts of the data come from strangers: they are only ever set as text, never as HTML.
"use strict";

const root = document.documentElement;
const css = name => getComputedStyle(root).getPropertyValue("--" + name).trim();
const formatNumber = value => value.toLocaleString("en-US", {maximumFractionDigits: 6});
const formatPercent = (share, digits = 0) => (100 * share).toFixed(digits) + " %";

/** Format with a prefix for thousands: 1500 is "1.5 k". */
function formatScaled(value, digits = 6) {
  const power = Math.abs(value) < 1000 ? 0 : Math.min(Math.floor(Math.log10(Math.abs(value)) / 3 + 1e-9), 4);
  return +(value / 1000 ** power).toPrecision(digits) + ["", " k", " M", " G", " T"][power];
}

/** Format 10 ** power seconds. */
function formatSeconds(power) {
  const s = 10 ** power;
  return s >= 0.9995 ? formatNumber(s < 10 ? +s.toFixed(1) : Math.round(s)) + " s"
    : s >= 9.5e-4 ? +(s * 1000).toPrecision(2) + " ms" : +(s * 1e6).toPrecision(2) + " µs";
}

/** Return a function from a share to the colour so far between two colours. */
function blendColours(from, to) {
  const part = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  return share => {
    const s = Math.min(Math.max(share, 0), 1);
    return "rgb(" + [0, 1, 2].map(i => Math.round(part(from, i) + s * (part(to, i) - part(from, i)))).join(",") + ")";
  };
}

function makeElement(kind, name, text = "") {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

/** Make the key of a colour scale; ticks are pairs of share and text. */
function makeRamp(title, from, to, ticks) {
  const ramp = makeElement("div", "ramp"), strip = makeElement("div", "strip"), texts = makeElement("div", "ticks");
  strip.style.background = `linear-gradient(90deg, ${from}, ${to})`;
  for (const [share, text] of ticks) {
    const tick = makeElement("span", "", text);
    tick.style.left = 100 * share + "%";
    texts.append(tick);
  }
  ramp.append(makeElement("div", "", title), strip, texts);
  return ramp;
}

// The hint at the pointer is one element for all charts.
const hint = makeElement("div", "hint");
hint.hidden = true;
document.body.append(hint);

function showHint(plot, text) {
  hint.hidden = !text;
  if (!text) return;
  hint.textContent = text;
  const at = plot.over.getBoundingClientRect(), x = at.left + plot.cursor.left, y = at.top + plot.cursor.top;
  const left = x + 14 + hint.offsetWidth > root.clientWidth ? x - 14 - hint.offsetWidth : x + 14;
  hint.style.left = scrollX + Math.max(left, 4) + "px";
  hint.style.top = scrollY + Math.max(y - hint.offsetHeight - 10, 4) + "px";
}

/** A series that paints itself, within the plot and below the lines; x and y give the place of a value on the canvas. */
function makePainted(label, colour, paint, more = {}) {
  return {label, stroke: colour, fill: colour, points: {show: false}, ...more, paths: plot => {
    const {ctx, bbox} = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    paint(ctx, value => plot.valToPos(value, "x", true), value => plot.valToPos(value, "y", true));
    ctx.restore();
    return null;
  }};
}

/** A series whose values hold until the next one. */
function makeSteps(label, colour, more = {}) {
  return {label, stroke: colour, width: 2, points: {show: false}, paths: uPlot.paths.stepped({align: 1}), ...more};
}

/** Return the index of the step at x; edges has one value more than there are steps. */
function findStep(edges, x) {
  const after = edges.findIndex(edge => edge > x);
  return after < 0 ? edges.length - 2 : Math.max(after - 1, 0);
}

/** A row of bars for each series; series have their bars as lists: row, start, length, colour, text. */
function makeBarRows(series, part) {
  const painted = series.map(each => makePainted(each.label, each.key, (ctx, x, y) => {
    each.row.forEach((row, i) => {
      const left = x(each.start[i]), width = x(each.start[i] + each.length[i]) - left, top = y(row - part / 2);
      ctx.fillStyle = each.colour[i];
      ctx.fillRect(left, top, Math.max(width, 0.5), y(row + part / 2) - top);
    });
  }, {class: each.listed ? null : "unlisted"}));
  const findText = (plot, x, y) => {
    const row = Math.round(y);
    let nearest = 2 * (plot.scales.x.max - plot.scales.x.min) / plot.over.clientWidth, text = "";
    if (Math.abs(y - row) <= part / 2) series.forEach((each, number) => each.row.forEach((other, i) => {
      const off = Math.max(each.start[i] - x, x - each.start[i] - each.length[i], 0);
      if (other === row && off <= nearest && plot.series[number + 1].show) [nearest, text] = [off, each.text[i]];
    }));
    return text;
  };
  return {series: painted, findText};
}

/** Return whole numbers for the ticks of rows, far enough apart to be read. */
function listRowTicks(plot, _, low, high) {
  const least = 17 * (high - low) / (plot.over.clientHeight || plot.height);
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find(each => each >= least) || 1000, ticks = [];
  for (let row = step * Math.ceil(low / step); row <= high; row += step) ticks.push(row);
  return ticks;
}

/** Return those of ascending places that are at least so far from the one before. */
function keepApart(places, space) {
  const kept = [];
  for (const place of places) if (!kept.length || place - kept.at(-1) >= space) kept.push(place);
  return kept;
}

/** Make room for the widest value of an axis. */
function fitAxis(plot, values, number, cycle) {
  const axis = plot.axes[number];
  if (cycle > 1) return axis._size;
  plot.ctx.font = axis.font[0];
  return axis.gap + Math.max(12, ...(values || []).map(value => plot.ctx.measureText(value).width / devicePixelRatio));
}

function makeAxis(title, more = {}) {
  const font = "12px " + getComputedStyle(document.body).fontFamily;
  return {label: title || null, stroke: css("soft"), font, labelFont: font, labelSize: title ? 22 : 0, labelGap: title ? 4 : 0, gap: 6,
    grid: {stroke: css("grid"), width: 1}, ticks: {show: false}, border: {show: true, stroke: css("line"), width: 1},
    values: (_, ticks) => ticks.map(formatNumber), ...more};
}

/** Draw a line across the plot, in pixels of the page. */
function drawLine(plot, colour, dash, [x0, y0], [x1, y1]) {
  const {ctx, bbox} = plot, scale = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * scale;
  ctx.setLineDash(dash.map(part => part * scale));
  ctx.beginPath();
  ctx.moveTo(bbox.left + x0 * scale, bbox.top + y0 * scale);
  ctx.lineTo(bbox.left + x1 * scale, bbox.top + y1 * scale);
  ctx.stroke();
  ctx.restore();
}

/** Draw where the job was resumed: lines, and labels above them that stay within the chart. */
function drawResumes(plot, times) {
  const wrap = plot.over.parentElement;
  wrap.querySelectorAll(".resumed").forEach(label => label.remove());
  let free = -Infinity;
  for (const time of times) {
    const x = plot.valToPos(time, "x"), width = plot.over.clientWidth;
    if (x < 0 || x > width) continue;
    drawLine(plot, css("late"), [2, 3], [x, 0], [x, plot.over.clientHeight]);
    const label = makeElement("span", "resumed", "resumed");
    wrap.append(label);
    const left = Math.min(Math.max(x - label.offsetWidth / 2, 0), width - label.offsetWidth);
    // A share of the width: on paper the chart is narrower.
    label.style.left = 100 * (plot.over.offsetLeft + left) / plot.width + "%";
    label.style.top = plot.over.offsetTop - 17 + "px";
    // No label over another.
    if (left < free) label.remove();
    else free = left + label.offsetWidth + 4;
  }
}

const plots = new Map();
const sizes = new ResizeObserver(changes => changes.forEach(({target}) => {
  const plot = plots.get(target.id);
  if (plot && target.clientWidth && target.clientWidth !== plot.width) plot.setSize({width: target.clientWidth, height: plot.height});
}));

/**
 * Show a chart in place of the one that is there; a part that was zoomed into stays.
 *
 * spec: height; data, series, bands and axes of uPlot; y, y2: ranges of the scales; down: y grows downwards;
 * resumes: times to mark; level: a dashed line; ramp: key of the colours; findText(plot, x, y): text at a place.
 */
function showChart(id, spec) {
  const box = document.getElementById(id), old = plots.get(id), keys = makeElement("div", "keys");
  const zoomed = old && ["x", "y"].filter(key => old.full[key] !== old.scales[key].min + " " + old.scales[key].max);
  const kept = (zoomed || []).map(key => [key, {min: old.scales[key].min, max: old.scales[key].max}]);
  if (old) old.destroy();
  box.replaceChildren(keys);
  if (spec.ramp) keys.append(spec.ramp);
  const makeScale = range => ({range: () => range, auto: (_, reset) => reset});
  const plot = new uPlot({
    width: box.clientWidth, height: spec.height, padding: [18, spec.y2 ? 0 : 14, 0, 0],
    scales: {x: {time: false, range: (_, low, high) => [low, high]}, y: {...makeScale(spec.y), dir: spec.down ? -1 : 1},
      ...(spec.y2 ? {y2: makeScale(spec.y2)} : {})},
    series: [{}, ...spec.series], bands: spec.bands || [], axes: spec.axes,
    legend: {show: spec.series.some(each => each.class !== "unlisted") && spec.series.length > 1, live: false, mount: (_, legend) => keys.append(legend)},
    cursor: {x: !spec.down, y: false, points: {show: false}, drag: {x: true, y: true, uni: 40, dist: 4}},
    hooks: {
      setCursor: [it => showHint(it, it.cursor.left < 0 ? "" : spec.findText(it, it.posToVal(it.cursor.left, "x"), it.posToVal(it.cursor.top, "y")))],
      draw: [it => {
        if (spec.level) drawLine(it, css("soft"), [5, 4], [0, it.valToPos(spec.level, "y")], [it.over.clientWidth, it.valToPos(spec.level, "y")]);
        drawResumes(it, spec.resumes || []);
      }],
      setSeries: spec.setSeries ? [spec.setSeries] : [],
      destroy: [() => showHint(plot, "")],
    },
  }, spec.data, box);
  plot.full = {x: spec.data[0][0] + " " + spec.data[0].at(-1), y: spec.y.join(" ")};
  plots.set(id, plot);
  kept.forEach(([key, range]) => plot.setScale(key, range));
  if (!old) sizes.observe(box);
}
