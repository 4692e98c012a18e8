// HOST PORT: four connections, 50 requests each.
const http = require("http");
const [host, port] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
const get = (size) =>
  new Promise((resolve, reject) => {
    const request = http.get({ host, port, agent, path: "/" + size }, (response) => {
      let text = "";
      response.on("data", (piece) => (text += piece));
      response.on("end", () => (text === "x".repeat(size) ? resolve() : reject(new Error("wrong body of " + size))));
    });
    request.on("error", reject);
  });
const visit = async () => {
  for (let number = 0; number < 50; number++) await get(10 + 97 * number);
};
Promise.all([visit(), visit(), visit(), visit()]).then(
  () => {
    agent.destroy();
    console.log("ok");
  },
  (error) => {
    console.log(error);
    process.exit(1);
  },
);
