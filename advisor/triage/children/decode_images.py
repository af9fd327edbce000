"""Decodes and augments JPEGs as a training's loader does, in one process and in several at once; prints a line of JSON for each result.

`python decode_images.py '{"processes": 8, "seconds": 2.0, "files": []}'`, in the interpreter that trains. Python 3.9 and newer.
"""

import importlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, List, Tuple

Pipeline = Callable[[bytes], Any]
WIDTH, HEIGHT, TARGET_BYTES, PICTURES = 500, 375, 105_000, 8  # the commonest size of ImageNet, and its median bytes
FILES_MOST = 64


def main() -> None:
    asked = json.loads(sys.argv[1])
    pipeline, name, whole = choose_pipeline()
    write_result(pipeline=name, whole=whole)
    pictures = [make_picture() for _ in range(PICTURES)]
    pipeline(pictures[0])
    write_result(one=per_cpu_second(pipeline, pictures, asked["seconds"]))
    own = [data for data in map(read, asked["files"][:FILES_MOST]) if decodes(pipeline, data)]
    if own:
        mean = sum(map(len, own)) / len(own)
        write_result(data=per_cpu_second(pipeline, own, asked["seconds"]), data_bytes=mean)
    write_result(phase="all")
    done = by_all(pipeline, pictures, asked["processes"], asked["seconds"])
    rates = [one for one in done if one is not None]
    if len(rates) < len(done):
        write_result(why_not_all=f"{len(done) - len(rates)} of {len(done)} processes ended without a result")
    else:
        write_result(all=sum(rate for rate, _ in rates), ran_share=sum(ran for _, ran in rates) / len(rates))


def write_result(**result: object) -> None:
    print(json.dumps(result), flush=True)


def choose_pipeline() -> Tuple[Pipeline, str, bool]:
    """(function of the bytes of a picture, its name, whether it is a training's whole pipeline). Raises ImportError without Pillow."""
    image = importlib.import_module("PIL.Image")
    pillow = image.__version__

    def decode(data: bytes) -> Any:
        return image.open(io.BytesIO(data)).convert("RGB")

    try:
        torch = importlib.import_module("torch")
        torchvision = importlib.import_module("torchvision")
        transforms = importlib.import_module("torchvision.transforms")
    except ImportError:
        return decode, f"Pillow {pillow}, decoding alone: no torchvision here", False
    torch.set_num_threads(1)
    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    name = f"torchvision {torchvision.__version__} over Pillow {pillow}: decode, RandomResizedCrop, flip, ToTensor, Normalize"
    return lambda data: chain(decode(data)), name, True


def make_picture() -> bytes:
    """Returns a JPEG that costs as much to decode as a photograph: blurred noise, at the quality that gives it a photograph's size."""
    image, filters = importlib.import_module("PIL.Image"), importlib.import_module("PIL.ImageFilter")
    channels = [image.effect_noise((WIDTH, HEIGHT), 50.0).filter(filters.GaussianBlur(1.0)) for _ in range(3)]
    picture = image.merge("RGB", channels)
    low, high, best = 30, 98, b""
    while low <= high:
        quality = (low + high) // 2
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        data = buffer.getvalue()
        if not best or abs(len(data) - TARGET_BYTES) < abs(len(best) - TARGET_BYTES):
            best = data
        low, high = (quality + 1, high) if len(data) < TARGET_BYTES else (low, quality - 1)
    return best


def read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(8 << 20)
    except OSError:
        return b""


def decodes(pipeline: Pipeline, data: bytes) -> bool:
    try:
        pipeline(data)
    except Exception:  # noqa: BLE001 - whatever a decoder says of a file that is no picture
        return False
    return True


def per_cpu_second(pipeline: Pipeline, pictures: List[bytes], seconds: float) -> float:
    """CPU time, so that a quota or a neighbour does not make a core look slow."""
    count, until, began = 0, time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < until:
        pipeline(pictures[count % len(pictures)])
        count += 1
    return count / max(time.process_time() - began, 1e-9)


def by_all(pipeline: Pipeline, pictures: List[bytes], processes: int, seconds: float) -> List[Any]:
    """Forks processes that act like DataLoader workers. Returns for each (images per second of wall time, share of that time on a core).

    None for a process that failed.
    """
    pipes = []
    start = time.perf_counter() + 0.2
    for _ in range(processes):
        receive, send = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                os.close(receive)
                time.sleep(max(0.0, start - time.perf_counter()))
                count, cpu_began = 0, time.process_time()
                while not count or time.perf_counter() < start + seconds:
                    pipeline(pictures[count % len(pictures)])
                    count += 1
                took, ran = time.perf_counter() - start, time.process_time() - cpu_began
                os.write(send, json.dumps([count / took, ran / took]).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(send)
        pipes.append(receive)
    done: List[Any] = []
    for receive in pipes:
        text = os.read(receive, 256)
        os.close(receive)
        done.append(json.loads(text) if text else None)
        os.wait()
    return done


if __name__ == "__main__":
    main()
