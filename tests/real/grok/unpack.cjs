// The package brings its program packed, for an install script that is not run. Unpacks it beside the other programs.
const files = require("node:fs");
const path = require("node:path");
const { brotliDecompressSync } = require("node:zlib");

const modules = path.join(__dirname, "node_modules");
const scope = path.join(modules, "@xai-official");
for (const name of files.readdirSync(scope).filter((each) => each.startsWith("grok-"))) {
  const packed = files.readFileSync(path.join(scope, name, "bin", "grok.br"));
  files.writeFileSync(path.join(modules, ".bin", "grok-native"), brotliDecompressSync(packed), { mode: 0o755 });
}
