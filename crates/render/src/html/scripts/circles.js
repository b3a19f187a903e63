// Who waits for each other in a circle: strongly connected parts with more than one member (Tarjan, without recursion). Of each member, all of its part.
function circles(edges) {
  const to = new Map();
  for (const [from, into] of edges) {
    if (!to.has(from)) to.set(from, new Set());
    if (!to.has(into)) to.set(into, new Set());
    to.get(from).add(into);
  }
  const state = new Map();
  const stack = [];
  const found = new Map();
  let next = 0;
  for (const start of to.keys()) {
    if (state.has(start)) continue;
    const work = [{ node: start, children: null }];
    while (work.length > 0) {
      const frame = work[work.length - 1];
      if (!frame.children) {
        state.set(frame.node, { index: next, low: next, open: true });
        next += 1;
        stack.push(frame.node);
        frame.children = [...to.get(frame.node)];
      }
      const own = state.get(frame.node);
      const child = frame.children.pop();
      if (child === undefined) {
        work.pop();
        if (work.length > 0) {
          const parent = state.get(work[work.length - 1].node);
          parent.low = Math.min(parent.low, own.low);
        }
        if (own.low === own.index) {
          const part = [];
          let node;
          do {
            node = stack.pop();
            state.get(node).open = false;
            part.push(node);
          } while (node !== frame.node);
          if (part.length > 1) part.forEach((member) => found.set(member, part));
        }
      } else if (!state.has(child)) work.push({ node: child, children: null });
      else if (state.get(child).open) own.low = Math.min(own.low, state.get(child).index);
    }
  }
  return found;
}
