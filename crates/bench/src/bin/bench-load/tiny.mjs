// The same server as `tiny.rs`, under Node, which most servers run under: `tiny.mjs tiny stdio|http`.

import { createServer } from 'node:http';

const TEXT = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const TOOLS = [
  { name: 'echo', description: 'Says what it is told.', inputSchema: TEXT },
  { name: 'seen', description: 'Says what it was asked since it last said so.', inputSchema: { type: 'object' } },
];
const HELLO = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 'tiny', version: '1' },
};
// As much as a client here may ever send in one message.
const BODY_CHARS_MAX = 1024 * 1024;

let seen = {};

const says = text => ({ result: { content: [{ type: 'text', text }] } });

function told() {
  const counts = Object.entries(seen).map(([method, count]) => `${method}=${count} `);
  seen = {};
  return `seen ${counts.sort().join('')}end`;
}

// Returns the answer as text, or nothing where there is none.
function answer(text) {
  const { id, method, params } = JSON.parse(text);
  if (params?.name !== 'seen') seen[method] = (seen[method] ?? 0) + 1;
  if (id === undefined) return '';
  const outcome = () => {
    switch (method) {
      case 'tools/call': return says(params.name === 'seen' ? told() : params.arguments.text);
      case 'tools/list': return { result: { tools: TOOLS } };
      case 'initialize': return { result: HELLO };
      case 'ping': return { result: {} };
      default: return { error: { code: -32601, message: 'Method not found' } };
    }
  };
  return JSON.stringify({ jsonrpc: '2.0', id, ...outcome() });
}

if (process.argv[3] === 'http') {
  const server = createServer((request, response) => {
    if (request.method !== 'POST') return void response.writeHead(405).end();
    let body = '';
    request.setEncoding('utf8');
    request.on('data', piece => {
      body += piece;
      if (body.length > BODY_CHARS_MAX) request.destroy();
    });
    request.on('end', () => {
      const text = answer(body);
      if (text === '') return void response.writeHead(202).end();
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) };
      response.writeHead(200, headers).end(text);
    });
  });
  server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
} else {
  let rest = '';
  process.stdin.setEncoding('utf8');
  // What has arrived together is answered together.
  process.stdin.on('data', piece => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    const answers = lines.filter(line => line !== '').map(answer).filter(text => text !== '');
    if (answers.length > 0) process.stdout.write(`${answers.join('\n')}\n`);
  });
}
