// Prints what is wrong with Kubernetes objects and with a Dockerfile; nothing if all is well.
//
//   node check_manifests.mjs < {"objects": [{"from": "shared.yaml", "object": {...}}, ...], "dockerfiles": {"name": "text"}}
//
// Runs in the folder that npm has installed kubernetes-models and dockerfile-utils into.
import { readFileSync } from "node:fs";
import dockerfile from "dockerfile-utils";

// The validators of kubernetes-models read every name they know, and accept those they do not know. What is left unread
// is therefore misspelled, or in the wrong place.
function watched(value, path, unread) {
  if (value === null || typeof value !== "object") return value;
  if (!Array.isArray(value)) for (const name of Object.keys(value)) unread.add(`${path}/${name}`);
  const children = new Map();
  const all_read = () => Object.keys(value).forEach((name) => unread.delete(`${path}/${name}`));
  return new Proxy(value, {
    get(target, name) {
      if (typeof name === "symbol") return target[name];
      unread.delete(`${path}/${name}`);
      if (!children.has(name)) children.set(name, watched(target[name], `${path}/${name}`, unread));
      return children.get(name);
    },
    ownKeys(target) {
      all_read(); // a map, whose names are free
      return Reflect.ownKeys(target);
    },
  });
}

async function findings_of(object) {
  const [group, version] = object.apiVersion.includes("/") ? object.apiVersion.split("/") : ["", object.apiVersion];
  const file = `kubernetes-models/${group ? group + "/" : ""}${version}/${object.kind}`;
  let model;
  try {
    model = (await import(file))[object.kind];
  } catch {
    return [`there is no ${object.kind} in ${object.apiVersion}`];
  }
  const unread = new Set();
  const data = watched(object, "", unread);
  const made = new model({});
  const findings = [];
  try {
    Object.assign(made, { apiVersion: data.apiVersion, kind: data.kind });
    for (const name of Object.keys(object)) made[name] = data[name];
    made.validate();
  } catch (error) {
    findings.push(error.message);
  }
  for (const name of ["apiVersion", "kind"]) unread.delete(`/${name}`);
  for (const path of unread) findings.push(`${path} is not known here`);
  return findings;
}

const given = JSON.parse(readFileSync(0, "utf8"));
for (const { from, object } of given.objects) {
  for (const finding of await findings_of(object)) console.log(`${from}: ${object.kind}: ${finding}`);
}
for (const [name, text] of Object.entries(given.dockerfiles)) {
  for (const found of dockerfile.validate(text)) console.log(`${name}:${found.range.start.line + 1}: ${found.message}`);
}
