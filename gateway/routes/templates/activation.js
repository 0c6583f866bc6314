// The code is after the # of the link, which browsers send to no server. Nothing is sent before the button.
const [path, behind] = location.pathname.split("%23");
const code = location.hash.slice(1) || behind;
if (code) {
  document.getElementById("code").value = code;
  history.replaceState(null, "", path);
}
// A second click would show the answer to a link that is used up.
document.querySelector("form").addEventListener("submit", (event) => {
  event.target.querySelector("button").disabled = true;
});
