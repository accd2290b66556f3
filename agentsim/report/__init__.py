"""Results as one page of HTML that needs nothing else: `read` takes files, `page` makes the page.

A result file is checked against `shapes`; `words` says what the figures mean, `timeline` makes the data of
the charts, which `report.js` draws. Whatever a file says is escaped, and the page may load nothing.
"""
