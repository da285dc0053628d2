// Rates games with the reference implementation of OpenSkill.
// usage: node openskill.mjs DIR < games.json, where DIR has it in node_modules
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const { rate } = createRequire(process.argv[2] + '/')('openskill')
const games = JSON.parse(readFileSync(0))
console.log(JSON.stringify(games.map(({ teams, rank }) => rate(teams, { rank }))))
