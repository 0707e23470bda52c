// The secret of the link is after the `#`, which is not sent when a page is asked for. Here it goes into the form, and
// out of the address and the history.

const field = document.getElementById("link");
const secret = location.hash.slice(1);
if (field && secret) {
  field.value = secret;
  field.closest("[data-link]").hidden = true;
  history.replaceState(null, "", location.pathname);
  document.getElementById("password")?.focus();
}
