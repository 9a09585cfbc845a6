// Writes src/api.ts, what the page reads of batond's answers, from docs/api/openapi.json.
//   node generate_api.mjs           writes it
//   node generate_api.mjs --check   exit status 1 if it is not what would be written
import {readFileSync, writeFileSync} from 'node:fs';

const at = (path) => new URL(path, import.meta.url);
const {schemas} = JSON.parse(readFileSync(at('../docs/api/openapi.json'), 'utf8')).components;
const done = new Map();  // schema -> its text, those that it uses before it

const lower = (name) => name[0].toLowerCase() + name.slice(1);

function reader(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split('/').pop();
    if (schemas[name].type !== 'object') return reader(schemas[name]);
    write(name);
    return lower(name);
  }
  if (schema.type === 'array') return `list(${reader(schema.items)})`;
  return {string: 'text', boolean: 'flag', integer: 'number', number: 'number'}[schema.type];
}

function write(name) {
  if (done.has(name)) return;
  const {properties, required, description} = schemas[name];
  // The page has no use for objects of any fields.
  const known = Object.entries(properties).filter(([, schema]) => schema.type !== 'object');
  const fields = known.map(([key, schema]) => {
    const is = required.includes(key) && !schema.nullable ? reader(schema) : `optional(${reader(schema)})`;
    return `  ${key}: ${is},${schema.description ? `  // ${schema.description}` : ''}\n`;
  });
  done.set(name, `${description ? `// ${description}\n` : ''}export const ${lower(name)} = object({\n${fields.join('')}});\n` +
                     `export type ${name} = Read<typeof ${lower(name)}>;\n`);
}

for (const name of ['Status', 'Report', 'Standing', 'Explanation', 'Log', 'History']) write(name);
const text = `// Generated from docs/api/openapi.json by web/generate_api.mjs; do not edit.
import {type Read, flag, list, number, object, optional, text} from './read';

${[...done.values()].join('\n')}`;
const file = at('src/api.ts');
if (process.argv[2] !== '--check') {
  writeFileSync(file, text);
} else if (readFileSync(file, 'utf8') !== text) {
  process.stderr.write('web/src/api.ts is not what docs/api/openapi.json says: run node web/generate_api.mjs\n');
  process.exitCode = 1;
}
