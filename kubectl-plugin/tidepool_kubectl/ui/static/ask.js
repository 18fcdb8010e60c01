// Asks the command. What goes wrong is an Error whose text says it to whoever looks at the page.
const PATIENCE = 60_000;

async function answered(path) {
  try {
    return await fetch(`api/${path}`, { signal: AbortSignal.timeout(PATIENCE) });
  } catch (failed) {
    const isSlow = failed.name === "TimeoutError";
    throw new Error(isSlow ? "The command does not answer." : "The command has ended. Start `kubectl tidepool ui` again.");
  }
}

export async function ask(path) {
  const answer = await answered(path);
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) return said;
  throw new Error(said?.error ?? `The command cannot answer (${answer.status}). Its terminal says why.`);
}
