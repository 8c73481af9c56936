"""The tape room: a page that runs a trained machine in the browser, step by step (docs/viewer.md).

`page/` is the whole of it: `engine/`, the machine and the tasks in JavaScript, and `ui/`, what is seen. The modules
here give it machines: `server.py` on this computer, `site.py` as files for any web server, `export.py` as one file.
"""
