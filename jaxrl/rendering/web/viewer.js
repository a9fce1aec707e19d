// Plays episodes: poses of a model in 3-D, or images. `DATA` is defined by the page.
"use strict";

const find = (id) => document.getElementById(id);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

// One mesh per geom, in the frame of its body; MuJoCo's long axis is z, three.js's is y.
function geometry(geom) {
  const [a, b, c] = geom.size;
  if (geom.kind === "box") return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
  if (geom.kind === "capsule") return new THREE.CapsuleGeometry(a, 2 * b, 8, 24).rotateX(Math.PI / 2);
  if (geom.kind === "cylinder") return new THREE.CylinderGeometry(a, a, 2 * b, 40).rotateX(Math.PI / 2);
  if (geom.kind === "mesh") {
    const mesh = DATA.meshes[geom.mesh], shape = new THREE.BufferGeometry();
    shape.setAttribute("position", new THREE.BufferAttribute(new Float32Array(bytes(mesh.points)), 3));
    shape.setIndex(new THREE.BufferAttribute(new Uint32Array(bytes(mesh.faces)), 1));
    const flat = shape.toNonIndexed();  // corners are not shared, so that edges stay sharp
    flat.computeVertexNormals();
    return flat;
  }
  return new THREE.SphereGeometry(1, 32, 20).scale(...(geom.kind === "sphere" ? [a, a, a] : geom.size));
}

function solid(geom, ghost) {
  const [r, g, b, alpha] = geom.colour, clear = ghost ? 0.45 : alpha;
  const material = new THREE.MeshStandardMaterial({
    color: ghost ? "#bcc0c6" : new THREE.Color().setRGB(r, g, b, "srgb"),
    roughness: 0.55, metalness: 0.05, transparent: clear < 1, opacity: clear, depthWrite: !ghost,
  });
  const mesh = new THREE.Mesh(geometry(geom), material);
  Object.assign(mesh, { castShadow: !ghost && alpha > 0.5, receiveShadow: !ghost });
  mesh.position.fromArray(geom.pos);
  mesh.quaternion.set(geom.quat[1], geom.quat[2], geom.quat[3], geom.quat[0]);
  return mesh;
}

// A group per body that moves; geoms that do not move are added to the scene.
function figure(scene, ghost) {
  const bodies = Array.from({ length: DATA.bodies }, () => new THREE.Group());
  for (const geom of DATA.geoms) {
    if (geom.body >= 0) bodies[geom.body].add(solid(geom, ghost));
    else if (!ghost) scene.add(solid(geom, false));
  }
  for (const body of bodies) scene.add(body);
  return bodies;
}

// Squares of two shades with lines between them, a texture: it stays smooth far away.
function floor(squares, renderer) {
  const canvas = document.createElement("canvas"), side = 128, pen = canvas.getContext("2d");
  canvas.width = canvas.height = 2 * side;
  Object.assign(pen, { strokeStyle: "#aab2ba", lineWidth: 3 });
  for (let i = 0; i < 4; i++) {
    pen.fillStyle = (i + (i >> 1)) % 2 ? "#cbd0d5" : "#d6dade";
    for (const fill of [pen.fillRect, pen.strokeRect]) fill.call(pen, (i & 1) * side, (i >> 1) * side, side, side);
  }
  const map = new THREE.CanvasTexture(canvas);
  map.colorSpace = THREE.SRGBColorSpace;
  map.wrapS = map.wrapT = THREE.RepeatWrapping;
  map.repeat.set(squares / 2, squares / 2);
  map.anisotropy = renderer.capabilities.getMaxAnisotropy();
  const wide = squares * DATA.cell, material = new THREE.MeshStandardMaterial({ map, roughness: 1 });
  const mesh = new THREE.Mesh(new THREE.PlaneGeometry(wide, wide), material);
  mesh.receiveShadow = true;
  return mesh;
}

function createView() {
  const renderer = new THREE.WebGLRenderer({ canvas: find("view"), antialias: true });
  Object.assign(renderer.shadowMap, { enabled: true, type: THREE.PCFShadowMap });
  const scene = new THREE.Scene(), radius = DATA.radius, sky = new THREE.Color("#dfe7ee");
  Object.assign(scene, { background: sky, fog: new THREE.Fog(sky, 6 * radius, 30 * radius) });
  scene.add(new THREE.HemisphereLight("#ffffff", "#c4c2be", 2.3));
  const sun = new THREE.DirectionalLight("#fff6e8", 2.1);
  sun.castShadow = true;
  sun.shadow.mapSize.set(2048, 2048);
  Object.assign(sun.shadow, { bias: -0.0005, normalBias: 0.004 * radius });
  Object.assign(sun.shadow.camera, { left: -3 * radius, right: 3 * radius, top: 3 * radius, bottom: -3 * radius, near: 0.1 * radius, far: 14 * radius });
  const ground = floor(80 * Math.ceil(radius / DATA.cell), renderer);
  scene.add(sun, sun.target, ground);
  const camera = new THREE.PerspectiveCamera(38, 1, 0.02 * radius, 100 * radius);
  camera.up.set(0, 0, 1);
  const controls = new THREE.OrbitControls(camera, renderer.domElement);
  Object.assign(controls, { minDistance: 0.3 * radius, maxDistance: 25 * radius, maxPolarAngle: 0.53 * Math.PI });
  return { renderer, scene, sun, ground, camera, controls, own: figure(scene, false), ghost: figure(scene, true) };
}

// Poses are 16-bit integers: positions in steps of `scale` from `origin`, then quaternions.
function track(text, episode) {
  const numbers = new Int16Array(bytes(text));
  const from = new THREE.Quaternion(), to = new THREE.Quaternion(), next = new THREE.Vector3();
  const readPos = (at, v) => v.set(...[0, 1, 2].map((k) => episode.origin[k] + episode.scale * numbers[at + k]));
  const readQuat = (at, q) => q.set(numbers[at + 4], numbers[at + 5], numbers[at + 6], numbers[at + 3]).normalize();
  return (bodies, moment) => {
    const first = Math.floor(moment), last = Math.min(first + 1, episode.frames - 1), fraction = moment - first;
    bodies.forEach((body, i) => {
      const a = 7 * (first * bodies.length + i), b = 7 * (last * bodies.length + i);
      readPos(a, body.position).lerp(readPos(b, next), fraction);
      body.quaternion.slerpQuaternions(readQuat(a, from), readQuat(b, to), fraction);
    });
  };
}

const view = DATA.geoms ? createView() : null;
const aim = view && new THREE.Vector3(), moved = view && new THREE.Vector3();
let episode, moment = 0, playing = true, before = 0, steering = null;
const held = new Set();  // keys

function choose(number) {
  if (steering) view.arrow.visible = false;
  steering = null;
  episode = DATA.episodes[number];
  episode.sums ??= new Float32Array(bytes(episode.returns));
  if (view) {
    episode.pose ??= track(episode.poses, episode);
    episode.shade ??= episode.ghost && track(episode.ghost, episode);
    episode.aims ??= new Float32Array(bytes(episode.aim));
  }
  find("which").value = number;
  find("scrub").max = episode.frames - 1;
  find("success").textContent = episode.success === null ? "" : episode.success ? "success" : "failed";
  find("success").className = episode.success ? "good" : "bad";
  find("scrub").style.visibility = "visible";
  find("shades").hidden = !DATA.episodes.some((one) => one.ghost);
  show(0);
  home();
}

// A flat arrow of length 1 along x.
function arrow(scene) {
  const shape = new THREE.BufferGeometry(), [wide, head, neck] = [0.03, 0.1, 0.75];
  const points = [0, -wide, neck, -wide, neck, wide, 0, -wide, neck, wide, 0, wide, neck, -head, 1, 0, neck, head];
  const corners = points.flatMap((value, i) => (i % 2 ? [value, 0] : [value]));
  shape.setAttribute("position", new THREE.BufferAttribute(new Float32Array(corners), 3));
  shape.computeVertexNormals();
  const mesh = new THREE.Mesh(shape, new THREE.MeshStandardMaterial({ color: "#c8502d" }));
  scene.add(mesh);
  return mesh;
}

// Lets the arrow keys steer the figure, instead of showing an episode.
function takeOver() {
  for (const one of DATA.episodes) one.pose ??= track(one.poses, one);
  steering = takeOver.steering ??= new Steering(DATA.episodes, view.own, DATA.steer);
  view.arrow ??= arrow(view.scene);
  view.arrow.visible = find("shades").hidden = true;
  view.ghost.forEach((body) => (body.visible = false));
  find("which").value = "steer";
  find("which").blur();  // the arrow keys are no longer for the list
  find("scrub").style.visibility = "hidden";
  find("step").textContent = "← → turn, ↑ ↓ faster and slower";
  for (const name of ["clock", "success"]) find(name).textContent = "";
  drive(0);
  home();
}

function drive(seconds) {
  steering.advance(seconds, held, view.own);
  const { direction, speed } = steering.command, [x, y] = steering.place();
  find("return").textContent = `command ${speed.toFixed(2)} m/s, moves at ${steering.row.speed.toFixed(2)} m/s`;
  view.arrow.position.set(x, y, DATA.ground + 0.01 * DATA.radius);
  view.arrow.rotation.z = direction;
  view.arrow.scale.setScalar(DATA.radius * (0.5 + speed / Math.max(steering.top, 1e-6)));
  look(moved.set(x, y, aim.z));
}

function home() {
  if (!view) return;
  view.controls.target.copy(aim);
  view.camera.position.fromArray(DATA.direction).multiplyScalar(3.6 * DATA.radius).add(aim);
}

const short = (value) => (Math.abs(value) < 100 ? String(Number(value.toPrecision(4))) : value.toFixed(1));

function show(at) {
  moment = Math.max(0, Math.min(at, episode.frames - 1));
  const frame = Math.round(moment), step = Math.min(frame * episode.stride, episode.steps);
  find("scrub").value = moment;
  find("step").textContent = `step ${step} / ${episode.steps}`;
  find("clock").textContent = episode.clock ? `${(moment * episode.pause).toFixed(2)} s` : "";
  find("return").textContent = `return ${short(episode.sums[frame])} of ${short(episode.sums.at(-1))}`;
  document.body.dataset.frame = frame;
  if (!view) return void (find("image").src = episode.images[frame]);
  episode.pose(view.own, moment);
  view.ghost.forEach((body) => (body.visible = Boolean(episode.shade) && find("shade").checked));
  if (episode.shade) episode.shade(view.ghost, moment);
  look(moved.fromArray(episode.aims, 3 * frame));
}

// Aims the camera, the sun and the ground at a point.
function look(point) {
  moved.copy(point).sub(aim);
  aim.add(moved);
  if (find("follow").checked) {
    view.camera.position.add(moved);
    view.controls.target.add(moved);
  }
  const near = (x) => Math.round(x / (2 * DATA.cell)) * 2 * DATA.cell;  // so that squares stay put
  view.ground.position.set(near(aim.x), near(aim.y), DATA.ground);
  view.sun.target.position.copy(aim);
  view.sun.position.set(2, -4, 5.5).multiplyScalar(DATA.radius).add(aim);
}

function resize() {
  view.renderer.setPixelRatio(Math.min(window.devicePixelRatio, 2));
  view.renderer.setSize(window.innerWidth, window.innerHeight, false);
  view.camera.aspect = window.innerWidth / window.innerHeight;
  view.camera.updateProjectionMatrix();
}

function play(on) {
  if (on && !steering && moment >= episode.frames - 1) show(0);  // at the end, start again
  playing = on;
  find("play").textContent = on ? "❚❚" : "▶";
  find("play").setAttribute("aria-label", on ? "pause" : "play");
}

function tick(now) {
  const passed = Math.min(now - before, 100) / 1000;
  before = now;
  if (playing && steering) drive(passed * Number(find("speed").value));
  else if (playing) {
    show(moment + (passed * Number(find("speed").value)) / episode.pause);
    if (moment >= episode.frames - 1) DATA.embedded ? show(0) : play(false);
  }
  if (view) {
    view.controls.update();
    view.renderer.render(view.scene, view.camera);
  }
  requestAnimationFrame(tick);
}

DATA.episodes.forEach((one, i) => find("which").add(new Option(one.title, i)));
if (DATA.steer) find("which").add(new Option("steer it by the arrow keys", "steer"), 0);
find("which").onchange = ({ target }) => (target.value === "steer" ? takeOver() : choose(Number(target.value)), play(true));
find("play").onclick = () => play(!playing);
find("scrub").oninput = (event) => (play(false), show(Number(event.target.value)));
find("home").onclick = home;
find("shade").onchange = () => show(moment);
window.onkeydown = (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches?.("select")) return;
  if (steering && event.key.startsWith("Arrow")) return held.add(event.key), event.preventDefault();
  if (event.target.matches("select, input[type=checkbox], button")) return;
  if (event.key === " ") play(!playing), event.preventDefault();
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) play(false), show(Math.round(moment) + by), event.preventDefault();
};
window.onkeyup = (event) => held.delete(event.key);
window.onblur = () => held.clear();
if (view) window.onresize = resize, resize();
if (DATA.embedded) {  // one of several views: no controls, and the wheel scrolls the page
  document.body.className = "embedded";
  if (view) view.controls.enableZoom = false;
}
for (const name of view ? ["image"] : ["view", "follows", "home"]) find(name).hidden = true;
choose(0);
if (DATA.steer) takeOver();
play(true);
requestAnimationFrame(tick);
