// Package plainpage holds the style of the small pages that links in mails lead to: the name of the
// application above a card, and a link back below.
package plainpage

// Style is the pages' style sheet. It names elements only: a header with a link,
// and a main with a heading, text, a form of fields and buttons and a footer; .failed marks
// the heading of what did not work.
const Style = `:root{color-scheme:light dark;--page:light-dark(#f5f6f8,#14161a);--card:light-dark(#fff,#1d2026);--line:light-dark(#e2e5ea,#31353d);` +
	`--text:light-dark(#1b1f26,#eceef2);--soft:light-dark(#5b6370,#a0a8b5);--accent:light-dark(#3151d3,#7b93f8);--on:light-dark(#fff,#10131c);--bad:light-dark(#b3261e,#f2938c)}` +
	`*{box-sizing:border-box}body{margin:0;min-height:100vh;font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;color:var(--text);background:var(--page)}` +
	`header{padding:1.1rem 1.5rem;font-weight:650}header a{color:inherit;text-decoration:none}` +
	`main{width:min(24rem,100% - 2rem);margin:7vh auto 4rem;padding:1.8rem;background:var(--card);border:1px solid var(--line);border-radius:14px;box-shadow:0 1px 2px rgb(0 0 0/4%)}` +
	`h1{margin:0;font-size:1.35rem;line-height:1.3;overflow-wrap:anywhere}.failed{color:var(--bad)}p{margin:1rem 0 0;color:var(--soft);overflow-wrap:anywhere}strong{color:var(--text)}` +
	`form{display:grid;gap:.6rem;margin-top:1.3rem}label{display:grid;gap:.3rem}input{font:inherit;width:100%;padding:.6rem .8rem;color:inherit;background:var(--page);border:1px solid var(--line);border-radius:9px}button{font:inherit;font-weight:500;padding:.65rem 1rem;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:9px;cursor:pointer}` +
	`button:first-of-type{color:var(--on);background:var(--accent);border-color:transparent}:focus-visible{outline:2px solid var(--accent);outline-offset:2px}` +
	`footer{margin-top:1.4rem;font-size:.93rem}footer a{color:var(--accent)}`
