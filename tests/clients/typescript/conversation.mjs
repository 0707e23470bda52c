// What every TypeScript client says to Portcullis, whichever SDK and transport carry it.
//
// `sdk1.mjs` and `client2.mjs` connect and hand over a peer; the checks are the same, and the same as those of the
// Python clients. `cargo xtask clients` copies these files next to the installed packages, starts them and sets
// PORTCULLIS_BIN, PORTCULLIS_TEST_HOME, PORTCULLIS_URL and PORTCULLIS_TOKEN; see `../python/conversation.py`.

import { isDeepStrictEqual } from 'node:util';

// One check; nothing that is asked here takes a hub longer than a moment.
export const CHECK_MS_MAX = 15_000;
// All of one script; the one who starts it waits a little longer than this.
const SCRIPT_MS_MAX = 60_000;

// How long to wait before another look at what takes a moment.
const LOOK_MS = 50;

const TOOLS = [
  'memory_read',
  'memory_write',
  'script_exec',
  'script_list',
  'script_propose',
  'script_reload',
  'script_run',
  'workspace_list',
  'workspace_read',
  'workspace_write',
];
// What JSON-RPC says about wrong parameters, and MCP before 2026-07-28 about a missing resource.
export const INVALID_PARAMS = -32602;
export const RESOURCE_NOT_FOUND = -32002;

let failed = 0;

// Runs one check. A failure is told, and the next check runs all the same.
export async function check(what, body) {
  try {
    await bounded(body(), CHECK_MS_MAX);
    console.log(`ok     ${what}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${what}: ${error.stack ?? error}`);
  }
}

export function expect(found, wanted, what) {
  if (!isDeepStrictEqual(found, wanted)) {
    throw new Error(`${what} is ${JSON.stringify(found)}, expected ${JSON.stringify(wanted)}`);
  }
}

function bounded(promise, ms) {
  const { promise: late, reject } = Promise.withResolvers();
  const timer = setTimeout(() => reject(new Error(`no answer after ${ms} ms`)), ms);
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Returns the JSON-RPC error with which a request must be answered.
async function errorOf(promise) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`it was answered with ${JSON.stringify(result)}, expected an error`);
}

// Runs every check. `peer` is what differs between the SDKs; `mark` makes the names of files its own.
export async function converse(peer, mark) {
  const { client } = peer;
  const folder = `clients/${mark}`;
  const note = `${folder}/note.md`;
  const text = `# Written by ${mark}\n`;
  const address = `workspace:///${note}`;
  const call = (name, args) => client.callTool({ name, arguments: args });

  await check('greets and agrees on a version', async () => {
    expect(peer.version(), peer.wanted, 'the protocol version');
    expect(client.getServerVersion().name, 'portcullis', "the server's name");
  });
  await check('lists the tools', async () => {
    const { tools } = await client.listTools();
    // The other server may still be starting, which holds up nobody.
    const own = tools.map(tool => tool.name).filter(name => !name.startsWith('far_'));
    expect(own.sort(), TOOLS, 'the list of tools');
  });
  await check('writes a file, with structured content', async () => {
    const result = await call('workspace_write', { path: note, content: text });
    expect(result.isError ?? false, false, '`isError`');
    expect(result.structuredContent, { path: note, bytes: text.length, created: true }, 'the structured content');
  });
  await check('reads the file', async () => {
    expect((await call('workspace_read', { path: note })).content[0].text, text, 'the text');
  });
  await check('keeps and reads a memory', async () => {
    await call('memory_write', { file: mark, content: 'one' });
    await call('memory_write', { file: mark, content: 'two', append: true });
    expect((await call('memory_read', { file: mark })).content[0].text, 'one\ntwo', 'the memory');
  });
  await check('calls a server behind the hub', async () => {
    while (!(await client.listTools()).tools.some(tool => tool.name === 'far_echo')) {
      await new Promise(resolve => setTimeout(resolve, LOOK_MS));
    }
    expect((await call('far_echo', { text: mark })).content[0].text, mark, 'the text');
  });
  await check('a missing file is an error result', async () => {
    const result = await call('workspace_read', { path: `${folder}/gone.md` });
    expect([result.isError, result.structuredContent.code], [true, 'not_found'], 'the result');
  });
  await check('an error of a tool with an output schema is an error result', async () => {
    // The 1.x SDK holds the structured content of errors, too, against the output schema.
    const result = await call('workspace_write', { path: '../out.md', content: '' });
    expect(result.isError, true, '`isError`');
    if (!result.content[0].text.includes('../out.md')) throw new Error(`the text is ${result.content[0].text}`);
  });
  await check('wrong arguments are an error result', async () => {
    const result = await call('workspace_read', { pth: note });
    expect([result.isError, result.structuredContent.code], [true, 'invalid_args'], 'the result');
  });
  await check('an unknown tool is a protocol error', async () => {
    const error = await errorOf(call('nobody_knows', {}));
    expect(error.code, INVALID_PARAMS, 'the code');
    if (!error.message.endsWith('Unknown tool: nobody_knows')) throw new Error(`the message is ${error.message}`);
  });
  await check('eight calls at once', async () => {
    const results = await Promise.all(Array.from({ length: 8 }, () => call('workspace_read', { path: note })));
    expect(results.map(result => result.content[0].text), Array(8).fill(text), 'what the calls returned');
  });
  await check('a call that is cancelled, and one after it', async () => {
    const givenUp = new AbortController();
    const cancelled = errorOf(peer.callWith({ name: 'workspace_list', arguments: {} }, { signal: givenUp.signal }));
    givenUp.abort('not needed any more');
    await cancelled;
    expect((await call('workspace_read', { path: note })).content[0].text, text, 'the text');
  });
  await check('lists the file as a resource', async () => {
    const { resources } = await client.listResources();
    const listed = resources.filter(resource => resource.uri === address).map(resource => resource.mimeType);
    expect(listed, ['text/markdown'], `what is listed at ${address}`);
  });
  await check('reads the resource', async () => {
    const { contents } = await client.readResource({ uri: address });
    expect(contents.map(({ uri, text }) => [uri, text]), [[address, text]], 'the contents');
  });
  await check('a missing resource is a protocol error', async () => {
    const error = await errorOf(client.readResource({ uri: `workspace:///${folder}/gone.md` }));
    expect(error.code, peer.missingResource, 'the code');
  });
  await check('lists the resource template', async () => {
    const { resourceTemplates } = await client.listResourceTemplates();
    expect(resourceTemplates.map(it => it.uriTemplate), ['workspace:///{+path}'], 'the list of templates');
  });
  await check('completes a path', async () => {
    const ref = { type: 'ref/resource', uri: 'workspace:///{+path}' };
    const { completion } = await client.complete({ ref, argument: { name: 'path', value: folder } });
    expect(completion.values, [note], 'the proposals');
  });
  await check('lists the prompt', async () => {
    const { prompts } = await client.listPrompts();
    const found = prompts.map(prompt => [prompt.name, prompt.arguments.map(argument => argument.name)]);
    expect(found, [['greet', ['who', 'tone']]], 'the list of prompts');
  });
  await check('gets the prompt with its arguments', async () => {
    const { messages } = await client.getPrompt({ name: 'greet', arguments: { who: 'Ada', tone: 'warm' } });
    expect(messages[0].content.text.trim(), 'Greet Ada in a warm tone.', 'the text');
  });
  await check('completes an argument of the prompt', async () => {
    const ref = { type: 'ref/prompt', name: 'greet' };
    const { completion } = await client.complete({ ref, argument: { name: 'tone', value: 'w' } });
    expect(completion.values, ['warm'], 'the proposals');
  });
  await check('hears that a resource changed', async () => {
    await peer.updated(address, () => call('workspace_write', { path: note, content: 'changed\n' }));
  });
}

export const stdioServer = () => ({
  command: process.env.PORTCULLIS_BIN,
  args: ['--home', process.env.PORTCULLIS_TEST_HOME, '--mcp'],
});

export const url = path => new URL(path, process.env.PORTCULLIS_URL);

export const bearer = (token = process.env.PORTCULLIS_TOKEN) => ({ Authorization: `Bearer ${token}` });

// Runs a script's conversation and ends the process with what came of it.
export async function run(script, ...args) {
  const mark = ['ts', ...args, process.pid].join('-').toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  try {
    await bounded(script(mark, ...args), SCRIPT_MS_MAX);
  } catch (error) {
    failed += 1;
    console.log(`FAILED the conversation: ${error.stack ?? error}`);
  }
  process.exit(failed === 0 ? 0 : 1);
}
