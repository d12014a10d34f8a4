// Hands a trace to ui.perfetto.dev, as its page on deep links says: ping until it answers, then post.
// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
(() => {
  "use strict";
  const Viewer = (window.SlipstreamViewer = window.SlipstreamViewer || {});
  const ORIGIN = "https://ui.perfetto.dev";
  const PING_MS = 60;
  const PATIENCE_MS = 60000;

  /** Wait until the opened page listens: messages before that are lost. */
  function awake(opened) {
    return new Promise((resolve, reject) => {
      const began = Date.now();
      const ping = setInterval(() => {
        if (opened.closed || Date.now() - began > PATIENCE_MS) end(new Error("Perfetto did not open"));
        else opened.postMessage("PING", ORIGIN);
      }, PING_MS);
      const hear = (event) => {
        if (event.origin === ORIGIN && event.data === "PONG") end(null);
      };
      function end(error) {
        clearInterval(ping);
        window.removeEventListener("message", hear);
        if (error) reject(error);
        else resolve();
      }
      window.addEventListener("message", hear);
    });
  }

  /** Open a window as a trace; called by a click, or the browser forbids the new tab. */
  async function openInPerfetto(title, window_us) {
    const opened = window.open(ORIGIN);
    if (!opened) throw new Error("the browser blocked the new tab");
    try {
      const [buffer] = await Promise.all([
        Viewer.ask("perfetto", { ...window_us, member: 0 }, "bytes"), awake(opened),
      ]);
      opened.postMessage({ perfetto: { buffer, title, fileName: `${title}.pftrace` } }, ORIGIN);
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  Viewer.openInPerfetto = openInPerfetto;
})();
