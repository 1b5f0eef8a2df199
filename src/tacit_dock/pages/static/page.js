// Every page works without this: it adds files by dropping them, and buttons that copy.
"use strict";
for (const place of document.querySelectorAll("[data-drop]")) {
  const input = place.querySelector("input[type=file]");
  for (const name of ["dragenter", "dragover"]) {
    place.addEventListener(name, (event) => {
      event.preventDefault();
      place.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) {
    place.addEventListener(name, () => place.classList.remove("over"));
  }
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length === 1) {
      input.files = event.dataTransfer.files;
      input.focus();
    }
  });
}
// A file dropped beside the place would replace the page.
for (const name of ["dragover", "drop"]) {
  window.addEventListener(name, (event) => event.preventDefault());
}
for (const block of document.querySelectorAll("pre.copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it and copy";
    }
  });
  const holder = document.createElement("div");
  holder.className = "copied";
  block.replaceWith(holder);
  holder.append(block, button);
}
