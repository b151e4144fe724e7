/** Filters of features, as parameters of the hub. */

import type { FeatureFilter } from './view';

/** Operators of property conditions, by how the hub writes them. */
export const OPERATORS: Readonly<Record<string, string>> = {
  '=': 'is',
  '!=': 'is not',
  '^=': 'begins with',
  '@>': 'contains',
  '>=': 'at least',
  '<=': 'at most',
};

/** Encode a filter; commas and plus signs keep their meaning as "or" and "and". */
export function filterQuery(filter: FeatureFilter): string {
  const parts = filter.properties.map((condition) => encode(`p.${condition}`, ','));
  if (filter.tags.trim()) parts.push(`tags=${encode(filter.tags.trim(), ',+')}`);
  for (const author of filter.author.split(',').map((one) => one.trim())) {
    if (author) parts.push(`author=${encodeURIComponent(author)}`);
  }
  return parts.join('&');
}

/** Return whether a filter leaves everything in. */
export function isEverything(filter: FeatureFilter): boolean {
  return filterQuery(filter) === '';
}

/** Describe a condition in words, such as `country is DE`. */
export function conditionText(condition: string): string {
  const found = /^(.*?)(!=|\^=|@>|>=|<=|=|>|<)(.*)$/s.exec(condition);
  if (!found) return condition;
  const [, name = '', operator = '', value = ''] = found;
  return `${name} ${OPERATORS[operator] ?? operator} ${value.split(',').join(' or ')}`;
}

function encode(text: string, raw: string): string {
  return [...text].map((letter) => (raw.includes(letter) ? letter : encodeURIComponent(letter))).join('');
}
