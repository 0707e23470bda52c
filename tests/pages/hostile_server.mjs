// An MCP server on stdio whose every word tries to be more than text. Its first argument is a file with a JSON list of
// texts; each becomes the description of a tool, and what that tool answers.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const texts = JSON.parse(readFileSync(process.argv[2], "utf8"));
const tools = texts.map((text, at) => ({
  name: `say_${at}`,
  title: text.slice(0, 60),
  description: text,
  inputSchema: { type: "object", properties: { word: { type: "string", description: text } } },
}));

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: texts[0], version: "1" },
        instructions: texts[0],
      };
    case "tools/list":
      return { tools };
    case "tools/call":
      return { content: [{ type: "text", text: texts[Number(params.name.slice(4))] }] };
    case "ping":
      return {};
    default:
      return undefined;
  }
}

for await (const line of createInterface(process.stdin)) {
  const message = JSON.parse(line);
  if (message.id === undefined) continue;
  const result = answer(message);
  const rest = result ? { result } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: message.id, ...rest })}\n`);
}
