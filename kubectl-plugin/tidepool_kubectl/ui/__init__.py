"""`kubectl tidepool ui`: a page on this machine that shows who lends to whom, by the rights of whoever started it.

`view` says what is shown and is pure, `reading` asks the cluster, `web` answers a browser and decides who may ask. The
page itself is in `static`: plain modules, which need no building and fetch nothing from anywhere else.
"""
