#!/bin/sh
# A streamed answer that a server broke off looks to the openai client like one that has ended.
#
# One would expect: a stream of chat completions ends in a chunk with finish_reason and in [DONE]. If they are missing, or
# an event says "error", or the answer is no stream, the client raises, as it does for a connection that breaks.
# What happens: it stops where the body stops. Half an answer without its end is half an answer, and no error. A last
# event without the empty line behind it is dropped, also if it is the one with finish_reason. JSON in place of a stream
# is no chunks at all. "event: error" comes out as a chunk whose choices are None, unless its data has a key "error".
# Versions: openai 3.57.0, against a server on the loopback interface.
# What follows: a client has to look for finish_reason itself; a server that fails in mid-stream has to send an object
# with "error" before it breaks off. weir serve does.
set -u
packages="openai==3.57.0"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: $packages cannot be had here"
    exit 77
fi
"$folder/venv/bin/python" - <<'EOF'
import http.server
import json
import sys
import threading
import openai

print("openai", openai.__version__)


def event(text, finish=None):
    return "data: " + json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
        {"index": 0, "delta": {"content": text}, "finish_reason": finish}]}) + "\n\n"


begin, end = event("It is not"), event(" safe.", "stop")
whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "It is not safe."}, "finish_reason": "stop"}]}
bodies = {"whole": begin + end + "data: [DONE]\n\n", "broken off": begin, "last line missing": begin + end[:-1], "no stream": json.dumps(whole),
          "event: error": begin + 'event: error\ndata: {"message": "out of memory"}\n\n',
          "a key error": begin + 'data: {"error": {"message": "out of memory"}}\n\n'}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = bodies[json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]].encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0)
seen = {}
for name in bodies:
    try:
        chunks = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "Is it?"}], stream=True)
        seen[name] = "".join(chunk.choices[0].delta.content if chunk.choices else "<no choices>" for chunk in chunks)
    except openai.OpenAIError as error:
        seen[name] = type(error).__name__
    print(f"{name}: expected {'It is not safe.' if name == 'whole' else 'an error'}, seen {seen[name]!r}")
sys.exit(list(seen.values()) != ["It is not safe.", "It is not", "It is not", "", "It is not<no choices>", "APIError"])
EOF
