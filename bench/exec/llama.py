"""llama.cpp's own commands, which know nothing of weir: llama.py FOLDER MODEL [MIB]. FOLDER has llama-bench and llama-completion.
It prints one JSON object: an answer that must not depend on who serves the memory, which is the hash of a text, and the seconds that
llama-bench took for a prompt of 512 tokens and for 128 tokens after it. With a number of MiB it expects that a cache which does not
fit beside the model is refused."""

import hashlib
import json
import os
import subprocess
import sys

ROUNDS = 10
WHOLE = ("-ngl", "99")
# Without -dev llama-completion does not look for modules, and computes on the processor; llama-bench always does.
COMPLETION = ("-dev", "CUDA0", "--fit", "off", "--temp", "0", "--ignore-eos", "-no-cnv", "--simple-io", "-n", "48", "-p", "a b c d e f g h")
BYTES_OF_A_TOKEN = 2 << 10  # of the cache of the smallest llama of gpu_llama_model.py; the one of 1.1 billion parameters has more


def run(*command):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)


def expect(done):
    if done.returncode:
        sys.exit(f"{done.args[0]}: exit status {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout


def main():
    folder, model = sys.argv[1:3]
    completion = (os.path.join(folder, "llama-completion"), "-m", model, *WHOLE, *COMPLETION)
    answer = expect(run(*completion, "-c", 1024))
    if len(sys.argv) > 3:
        tokens = (int(sys.argv[3]) << 20) // BYTES_OF_A_TOKEN  # as much as all of the budget at least
        given = run(*completion, "-c", tokens)
        if not given.returncode:
            sys.exit(f"more than the budget was given\n{given.stderr.decode(errors='replace')[-4000:]}")
    tests = json.loads(expect(run(os.path.join(folder, "llama-bench"), "-m", model, *WHOLE, "-p", 512, "-n", 128, "-r", ROUNDS, "-o", "json")))
    if "CUDA" not in tests[0]["backends"]:
        sys.exit(f"llama.cpp has found no GPU: {tests[0]['backends']}")
    print(json.dumps({"answer": hashlib.sha256(answer).hexdigest()[:12], "seconds": sum(test["avg_ns"] for test in tests) / 1e9}))


if __name__ == "__main__":
    main()
