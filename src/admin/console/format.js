// format: numbers, sizes and times as people read them.

const kNumbers = new Intl.NumberFormat("en-GB");
const kMinute = 60,
  kHour = 3600,
  kDay = 86400;

export const number = (value) => (value === null || value === undefined ? "–" : kNumbers.format(value));

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

// A rate: few digits, none that mean nothing.
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 0.1) return "< 0.1";
  return value < 10 ? value.toFixed(1) : number(Math.round(value));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 ms";
  if (value < 1) return `${value.toFixed(2)} ms`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  return value < 10000 ? `${(value / 1000).toFixed(1)} s` : duration(value / 1000);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < kMinute) return `${whole} s`;
  if (whole < kHour) return `${Math.floor(whole / kMinute)} min`;
  if (whole < 10 * kHour) {
    const minutes = Math.floor((whole % kHour) / kMinute);
    return `${Math.floor(whole / kHour)} h${minutes > 0 ? ` ${minutes} min` : ""}`;
  }
  if (whole < 2 * kDay) return `${Math.round(whole / kHour)} h`;
  return `${Math.floor(whole / kDay)} d`;
}

// How far the gateway's clock is ahead of this browser's.
let ahead_ms = 0;
export function set_clock(now_text) {
  ahead_ms = Date.parse(now_text) - Date.now();
}
export const now_ms = () => Date.now() + ahead_ms;

export function relative(text) {
  const seconds = (Date.parse(text) - now_ms()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

// In the browser's time zone, with the zone: logs of other machines may be in another one.
const kExact = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
export const exact = (text) => kExact.format(new Date(text));
// The same to the millisecond and without the year, to be compared with logs: events of one key lie close together.
const kMoment = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
export const moment = (text) => kMoment.format(new Date(text));
export const utc = (text) => text.replace("T", " ").replace("Z", " UTC");

const kClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (unix_seconds) => kClock.format(new Date(unix_seconds * 1000));

export const short_id = (id) => id.slice(0, 8);
