// The Inspector's command line: `inspector.mjs stdio|http|sse legacy|modern`.

import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { bearer, CHECK_MS_MAX, check, expect, run, stdioServer, url } from './conversation.mjs';

const PACKAGE = createRequire(import.meta.url).resolve('@modelcontextprotocol/inspector/package.json');
const LAUNCHER = join(dirname(PACKAGE), 'clients/launcher/build/index.js');
// How the Inspector ends when a tool answers with an error.
const TOOL_ERROR = 5;

function target(transport) {
  switch (transport) {
    case 'stdio': {
      const { command, args } = stdioServer();
      return [command, ...args, '--transport', 'stdio'];
    }
    case 'http':
      return [url('/mcp').href, '--transport', 'http', '--header', `Authorization: ${bearer().Authorization}`];
    case 'sse':
      return [url('/sse').href, '--transport', 'sse', '--header', `Authorization: ${bearer().Authorization}`];
    default:
      throw new Error(`no transport ${transport}`);
  }
}

await run(async (mark, transport, era) => {
  // The Inspector keeps a catalog in the user's home; this one is gone afterwards.
  const home = await mkdtemp(join(tmpdir(), 'portcullis-inspector-'));
  const env = { ...process.env, HOME: home };
  const inspect = (...args) => {
    const all = [LAUNCHER, '--cli', ...target(transport), '--protocol-era', era, '--format', 'json', ...args];
    return new Promise((resolve, reject) => {
      execFile(process.execPath, all, { env, timeout: CHECK_MS_MAX }, (error, stdout, stderr) => {
        if (error && typeof error.code !== 'number') reject(error);
        else resolve({ code: error?.code ?? 0, stdout, stderr });
      });
    });
  };
  const call = (tool, args) =>
    inspect('--method', 'tools/call', '--tool-name', tool, '--tool-args-json', JSON.stringify(args));
  const path = `clients/${mark}.md`;

  try {
    await check('lists the tools, whose schemas are portable', async () => {
      const { code, stdout, stderr } = await inspect('--method', 'tools/list', '--strict');
      expect([code, stderr], [0, ''], 'how the Inspector ended');
      const own = JSON.parse(stdout).result.tools.filter(tool => !tool.name.startsWith('far_'));
      expect(own.length, 10, 'the number of tools');
    });
    // On stdio every step is a hub of its own, in which the other server is still starting.
    if (transport !== 'stdio') {
      await check('calls a server behind the hub', async () => {
        const { code, stdout, stderr } = await call('far_echo', { text: mark });
        expect([code, stderr], [0, ''], 'how the Inspector ended');
        expect(JSON.parse(stdout).result.content[0].text, mark, 'the text');
      });
    }
    await check('writes a file', async () => {
      const { code, stdout, stderr } = await call('workspace_write', { path, content: 'hi\n' });
      expect([code, stderr], [0, ''], 'how the Inspector ended');
      expect(JSON.parse(stdout).result.structuredContent, { path, bytes: 3, created: true }, 'the structured content');
    });
    await check('reads the file', async () => {
      const { code, stdout, stderr } = await call('workspace_read', { path });
      expect([code, stderr], [0, ''], 'how the Inspector ended');
      expect(JSON.parse(stdout).result.content[0].text, 'hi\n', 'the text');
    });
    await check('a missing file is an error result', async () => {
      const { code, stdout } = await call('workspace_read', { path: 'gone.md' });
      expect([code, JSON.parse(stdout).result.isError], [TOOL_ERROR, true], 'the result');
    });
    await check('reads the resource', async () => {
      const { code, stdout, stderr } = await inspect('--method', 'resources/read', '--uri', `workspace:///${path}`);
      expect([code, stderr], [0, ''], 'how the Inspector ended');
      expect(JSON.parse(stdout).result.contents[0].text, 'hi\n', 'the text');
    });
    await check('gets the prompt', async () => {
      const { code, stdout, stderr } = await inspect(
        '--method', 'prompts/get', '--prompt-name', 'greet', '--prompt-args', 'who=Ada', 'tone=warm',
      );
      expect([code, stderr], [0, ''], 'how the Inspector ended');
      const text = JSON.parse(stdout).result.messages[0].content.text.trim();
      expect(text, 'Greet Ada in a warm tone.', 'the text');
    });
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}, process.argv[2], process.argv[3]);
