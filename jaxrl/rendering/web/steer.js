// Steers a robot through its recorded motion (motion matching): it plays on from the recorded frame whose pose is most
// like the present one and whose path comes closest to the command. Poses are those of the recording, moved and turned
// on the ground; no physics is computed here.
"use strict";

const SEARCH_EVERY = 0.15, BLEND = 0.3;  // seconds
const STAY = 0.8;  // leave the present frame for one that costs less than this fraction
const TURN_RATE = 1.8, FULL_SPEED_AFTER = 2;  // radians per second; seconds from standing to full speed
// What a frame is compared by, each part divided by its deviation: the path has the weight of both others.
const WEIGHTS = { path: 2, place: 1, velocity: 1 };

const heading = (q) => Math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y * q.y + q.z * q.z));
const turned = (angle, x, y) => [Math.cos(angle) * x - Math.sin(angle) * y, Math.sin(angle) * x + Math.cos(angle) * y];

class Steering {
  // `episodes` have `frames` and a `pose(bodies, moment)`; `root` is the number of the body that is steered. Times are
  // seconds: between frames, ahead where paths are compared, and how far frames are apart that are other motion.
  constructor(episodes, bodies, { root, pause, horizons, apart }) {
    Object.assign(this, { root, pause, apart: apart / pause, ahead: horizons.map((s) => Math.round(s / pause)) });
    this.rows = [];  // frames that can be played from, with what they are compared by
    for (const episode of episodes) this.describe(episode, bodies);
    this.scale();
    const speeds = this.rows.map((row) => row.speed).sort((a, b) => a - b);
    this.top = speeds[Math.floor(0.98 * (speeds.length - 1))];
    this.yaw = 0, this.shift = [0, 0], this.since = 0, this.left = 0;
    this.old = bodies.map(() => ({ position: new THREE.Vector3(), quaternion: new THREE.Quaternion() }));
    this.spin = new THREE.Quaternion(), this.up = new THREE.Vector3(0, 0, 1);
    this.start(this.rows[0]);
    const [x, y] = this.path(this.row).at(-1);
    this.command = { direction: Math.atan2(y, x) + this.row.heading, speed: Math.min(this.row.speed, this.top) };
  }

  // Adds the frames of an episode that are followed by a whole path.
  describe(episode, bodies) {
    const places = Array.from({ length: episode.frames }, (_, frame) => {
      episode.pose(bodies, frame);
      return { heading: heading(bodies[this.root].quaternion), points: bodies.map((body) => body.position.toArray()) };
    });
    const last = episode.frames - 1 - this.ahead.at(-1);
    for (let frame = 0; frame <= last; frame++) {
      const now = places[frame], [x, y] = now.points[this.root];
      const seen = (point) => turned(-now.heading, point[0] - x, point[1] - y);
      const path = this.ahead.flatMap((steps) => seen(places[frame + steps].points[this.root]));
      const place = now.points.flatMap((point) => [...seen(point), point[2]]);
      const velocity = places[frame + 1].points.flatMap((point, i) => {
        const move = point.map((value, k) => (value - now.points[i][k]) / this.pause);
        return [...turned(-now.heading, move[0], move[1]), move[2]];
      });
      const speed = Math.hypot(...path.slice(-2)) / (this.ahead.at(-1) * this.pause);
      this.rows.push({ index: this.rows.length, episode, frame, last, x, y, heading: now.heading, speed, parts: { path, place, velocity } });
    }
  }

  // Joins the parts of every row, scaled, so that a cost is a squared distance.
  scale() {
    this.factors = {};
    for (const [name, weight] of Object.entries(WEIGHTS)) {
      const all = this.rows.map((row) => row.parts[name]), number = all[0].length;
      const mean = Array.from({ length: number }, (_, i) => all.reduce((sum, part) => sum + part[i], 0) / all.length);
      const spread = all.reduce((sum, part) => sum + part.reduce((s, value, i) => s + (value - mean[i]) ** 2, 0), 0);
      this.factors[name] = Math.sqrt(weight / Math.max(spread / all.length, 1e-12));
    }
    for (const row of this.rows) {
      row.features = Float32Array.from(Object.keys(WEIGHTS).flatMap((name) => row.parts[name].map((value) => value * this.factors[name])));
      row.parts = null;
    }
  }

  // The recorded path of a row in its own heading frame, as points.
  path(row) {
    return this.ahead.map((_, i) => [0, 1].map((k) => row.features[2 * i + k] / this.factors.path));
  }

  // The path that the command asks for, in the present heading frame, scaled as in the rows.
  wanted() {
    const angle = this.command.direction - this.yaw - this.row.heading;
    return this.ahead.flatMap((steps) => {
      const distance = this.command.speed * steps * this.pause * this.factors.path;
      return [distance * Math.cos(angle), distance * Math.sin(angle)];
    });
  }

  // The squared distance of a row from the present pose and the wanted path.
  cost(row, wanted, enough = Infinity) {
    const now = this.row.features, other = row.features;
    let sum = 0;
    for (let i = 0; i < wanted.length; i++) sum += (other[i] - wanted[i]) ** 2;
    for (let i = wanted.length; i < now.length && sum < enough; i++) sum += (other[i] - now[i]) ** 2;
    return sum;
  }

  // The row to play on from.
  best() {
    const wanted = this.wanted(), now = this.row;
    let best = now, least = this.moment < now.last ? STAY * this.cost(now, wanted) : Infinity;
    for (const row of this.rows) {
      const near = row.episode === now.episode && Math.abs(row.frame - now.frame) < this.apart;
      if (near || row.last - row.frame < this.apart) continue;
      const cost = this.cost(row, wanted, least);
      if (cost < least) [best, least] = [row, cost];
    }
    return best;
  }

  start(row) {
    Object.assign(this, { row, moment: row.frame });
  }

  // Where the root is on the ground.
  place() {
    const [x, y] = turned(this.yaw, this.row.x, this.row.y);
    return [x + this.shift[0], y + this.shift[1]];
  }

  // Continues from another row at the same place in the same heading; the figure is blended from what it is now.
  jump(row, bodies) {
    const [x, y] = this.place(), heading = this.yaw + this.row.heading;
    bodies.forEach((body, i) => {
      this.old[i].position.copy(body.position), this.old[i].quaternion.copy(body.quaternion);
    });
    this.start(row);
    this.yaw = heading - row.heading;
    const [newX, newY] = turned(this.yaw, row.x, row.y);
    this.shift = [x - newX, y - newY];
    this.pose(bodies, 0);
    bodies.forEach((body, i) => {  // from now on, how far the old pose is from the new one
      this.old[i].position.sub(body.position);
      this.old[i].quaternion.multiply(body.quaternion.clone().invert());
    });
    this.left = BLEND;
  }

  // Changes the command by the keys that are held, plays on, and poses the bodies.
  advance(seconds, held, bodies) {
    const pressed = (key) => (held.has(key) ? 1 : 0);
    this.command.direction += TURN_RATE * seconds * (pressed("ArrowLeft") - pressed("ArrowRight"));
    const faster = (this.top / FULL_SPEED_AFTER) * seconds * (pressed("ArrowUp") - pressed("ArrowDown"));
    this.command.speed = Math.max(0, Math.min(this.command.speed + faster, this.top));
    this.moment = Math.min(this.moment + seconds / this.pause, this.row.last);
    this.row = this.rows[this.row.index + Math.floor(this.moment) - this.row.frame];
    this.since += seconds, this.left = Math.max(0, this.left - seconds);
    if (this.since >= SEARCH_EVERY || this.moment >= this.row.last) {
      this.since = 0;
      this.pose(bodies, this.left);
      const row = this.best();
      if (row !== this.row) this.jump(row, bodies);
    }
    this.pose(bodies, this.left);
  }

  // Poses the bodies, with what is left of the last blend in seconds.
  pose(bodies, left) {
    this.row.episode.pose(bodies, this.moment);
    this.spin.setFromAxisAngle(this.up, this.yaw);
    const fraction = (left / BLEND) ** 2, none = new THREE.Quaternion();
    bodies.forEach((body, i) => {
      const [x, y] = turned(this.yaw, body.position.x, body.position.y);
      body.position.set(x + this.shift[0], y + this.shift[1], body.position.z);
      body.quaternion.premultiply(this.spin);
      if (!fraction) return;
      body.position.addScaledVector(this.old[i].position, fraction);
      body.quaternion.premultiply(none.clone().slerp(this.old[i].quaternion, fraction));
    });
  }
}
