"""The pages in a browser: search, filter, upload, withdraw, by the keyboard alone."""

from __future__ import annotations

import pytest

from tacit_dock.examples import Example, keep_example
from tests.chromium import chromium
from tests.dock.learnwares import card, files, keep, specification
from tests.dock.running import running


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def served(tmp_path):
    with running(tmp_path / "dock") as found:
        for seed in range(3):
            told = card(f"Digits {seed}", ("mnist", f"part{seed}"), ("image", "text")[seed % 2])
            keep(found.store, {**files(specification(seed)), "card": told}, key=str(seed))
        near = specification(1, "task", noise=0.1)
        keep_example(found.store, Example("near", "One like the second", near.to_bytes()))
        yield found


@pytest.fixture
def page(browser, served):
    """A page that fails its test where anything is blocked, broken or asked for elsewhere."""
    context = browser.new_context(base_url=served.url)
    found, wrong = context.new_page(), []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda told: wrong.append(told.text) if "olicy" in told.text else None)
    found.on("request", lambda asked: asked.url.startswith(served.url) or wrong.append(asked.url))
    found.set_default_timeout(20_000)
    yield found
    context.close()
    assert [one for one in wrong if not one.startswith("data:")] == []


def press_until(page, name, key="Tab", most=60):
    """Go to what has this accessible name as somebody without a mouse does."""
    for _ in range(most):
        page.keyboard.press(key)
        told = page.evaluate(
            "[document.activeElement.innerText, document.activeElement.id].map(x => x || '')"
        )
        if name in told:
            return
    raise AssertionError(name)


def test_search_by_an_example_and_by_a_file(page, tmp_path):
    page.goto("/search")
    page.get_by_role("link", name="One like the second").click()
    assert page.locator("h1").inner_text() == "Digits 1 is the most similar."
    specification(50, "task").save(tmp_path / "task.safetensors")
    page.set_input_files("#specification", tmp_path / "task.safetensors")
    page.get_by_role("button", name="Search").click()
    assert page.locator("h1").inner_text() == "No good match."


def test_a_file_is_dropped(page):
    page.goto("/search")
    moved = page.evaluate_handle(
        "() => { const m = new DataTransfer(); m.items.add(new File(['x'], 'a.safetensors'));"
        " return m; }"
    )
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": moved})
    assert page.evaluate("document.querySelector('#specification').files[0].name") == (
        "a.safetensors"
    )


def test_filter(page):
    page.goto("/")
    page.select_option("#modality", "text")
    page.get_by_role("button", name="Show").click()
    assert page.locator(".cards h3").all_inner_texts() == ["Digits 1"]


def test_upload_and_withdraw(page, served, tmp_path):
    made = specification(9)
    made.save(tmp_path / "made.safetensors")
    (tmp_path / "made.json").write_bytes(files(made)["release"])
    (tmp_path / "card.md").write_bytes(card("Uploaded"))
    page.goto("/submit")
    page.fill("#token", served.token)
    page.set_input_files("#specification", tmp_path / "made.safetensors")
    page.set_input_files("#card", tmp_path / "card.md")
    page.set_input_files("#release", tmp_path / "made.json")
    page.get_by_role("button", name="Submit").click()
    assert page.locator("h1").inner_text() == "Uploaded"
    page.get_by_role("link", name="Withdraw it").click()
    page.fill("#reason", "a better one is there")
    page.fill("#token", served.token)
    page.get_by_role("button", name="Withdraw").click()
    assert page.locator("h1").inner_text() == "Withdrawn by me."
    assert "a better one is there" in page.locator("header").inner_text()


def test_by_the_keyboard_alone(page):
    page.goto("/")
    press_until(page, "Skip to the content", most=1)
    press_until(page, "Search by a task")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search")
    press_until(page, "One like the second")
    page.keyboard.press("Enter")
    page.wait_for_url("**example=near")
    press_until(page, "Digits 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/learnwares/*")
    press_until(page, "Withdraw it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/withdraw")
    press_until(page, "token")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(page, served, width):
    page.set_viewport_size({"width": width, "height": 800})
    identifier = served.store.learnwares().items[0].id
    for path in ("/", "/search?example=near", f"/learnwares/{identifier}", "/submit", "/no"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts(browser, served):
    context = browser.new_context(base_url=served.url, java_script_enabled=False)
    found = context.new_page()
    found.goto("/search")
    found.get_by_role("link", name="One like the second").click()
    assert found.locator("h1").inner_text() == "Digits 1 is the most similar."
    context.close()
