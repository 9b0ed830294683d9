"""Functions that run within blocks, as those of `emulate`: also asynchronous ones, and generators."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

Block = AbstractContextManager[Any]
"""A context that holds for the code inside it."""


def decorated(function: Callable[..., Any], block: Callable[[], Block]) -> Callable[..., Any]:
    """A function each call of which runs within a block, of the kind that `inspect` says the given one is.

    Of an asynchronous function, the block lasts until what it returns was awaited; of a generator, also an asynchronous
    one, each step is a block. Where another function returns a coroutine or a generator, that is treated alike.
    """
    for is_function, _, within in _KINDS:
        if is_function(function):
            return wraps(function)(within(function, block))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with block():
            found = function(*args, **kwargs)
        for _, is_result, within in _KINDS:
            if is_result(found):  # which runs later
                return within(lambda: found, block)()
        return found

    return call


def _awaiting(function: Callable[..., Any], block: Callable[[], Block]) -> Callable[..., Any]:
    """An asynchronous function that runs within a block."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        with block():
            return await function(*args, **kwargs)

    return call


def _stepping(function: Callable[..., Any], block: Callable[[], Block]) -> Callable[..., Any]:
    """A generator function, each step of whose generators is within a block."""

    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        step, value = generator.send, None
        while True:
            try:
                with block():
                    found = [step(value)]
            except StopIteration as end:
                return end.value
            finally:
                del step, value  # an error that was thrown in has this frame, and must not lie in it
            try:
                step, value = generator.send, (yield found.pop())  # which keeps nothing while it waits
            except GeneratorExit:
                with block():
                    generator.close()
                raise
            except BaseException as error:
                step, value = generator.throw, error

    return call


def _stepping_async(function: Callable[..., Any], block: Callable[[], Block]) -> Callable[..., Any]:
    """An asynchronous generator function, each step of whose generators is within a block."""

    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        step, value = generator.asend, None
        while True:
            try:
                with block():
                    found = [await step(value)]
            except StopAsyncIteration:
                return
            finally:
                del step, value  # an error that was thrown in has this frame, and must not lie in it
            try:
                step, value = generator.asend, (yield found.pop())  # which keeps nothing while it waits
            except GeneratorExit:
                with block():
                    await generator.aclose()
                raise
            except BaseException as error:
                step, value = generator.athrow, error

    return call


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any], bool], Callable[..., Callable[..., Any]]], ...] = (
    (inspect.iscoroutinefunction, inspect.iscoroutine, _awaiting),
    (inspect.isgeneratorfunction, inspect.isgenerator, _stepping),
    (inspect.isasyncgenfunction, inspect.isasyncgen, _stepping_async),
)
"""Functions whose results run later: how they, and their results, are known, and what runs them within blocks."""
