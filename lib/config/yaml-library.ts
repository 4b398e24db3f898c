/** The YAML library as a program of its own, so that a process reads it with its first text (yaml.ts). */
export { LineCounter, isScalar, parse, parseAllDocuments, parseDocument } from 'yaml';
