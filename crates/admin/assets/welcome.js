// The secret of the link is in the URL fragment, which browsers do not send. Move it to the form, and remove it from the
// address bar and history.

const field = document.getElementById("link");
const secret = location.hash.slice(1);
if (field && secret) {
  field.value = secret;
  field.closest("[data-link]").hidden = true;
  history.replaceState(null, "", location.pathname);
  document.getElementById("password")?.focus();
}
