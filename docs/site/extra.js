// Tables that scroll sideways are reached by the keyboard, too.
new MutationObserver(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0
}).observe(document.documentElement, {childList: true, subtree: true})
