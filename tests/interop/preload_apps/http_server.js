// HOST PORT: answers /N with N bytes.
const http = require("http");
const [host, port] = process.argv.slice(2);
const server = http.createServer((request, response) => response.end("x".repeat(Number(request.url.slice(1)))));
server.listen(Number(port), host);
process.on("SIGTERM", () => process.exit(0));
