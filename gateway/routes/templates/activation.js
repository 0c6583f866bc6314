// The code is after the # of the link, which browsers send to no server. Nothing is sent before the button.
const code = location.hash.slice(1);
if (code) {
  document.getElementById("code").value = code;
  history.replaceState(null, "", location.pathname);
}
