/** A TCP proxy in front of the server, whose connections a test can cut. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export class CuttingProxy {
  readonly #open = new Set<Socket>();
  readonly #requests: string[] = [];
  readonly #server = createServer((socket) => this.#forward(socket));
  url = "";

  constructor(readonly target: URL) {}

  static async start(target: string): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(new URL(target));
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    proxy.url = `http://127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`;
    return proxy;
  }

  /** The `Last-Event-ID` of every stream that was requested. */
  get resumedAfter(): number[] {
    return this.#requests.flatMap((text) => [...text.matchAll(/last-event-id: (\d+)/gi)].map((found) => Number(found[1])));
  }

  cut(): void {
    for (const socket of this.#open) {
      socket.destroy();
    }
  }

  async stop(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #forward(socket: Socket): void {
    const server = connect(Number(this.target.port), this.target.hostname);
    for (const each of [socket, server]) {
      this.#open.add(each);
      each.on("error", () => each.destroy());
      each.on("close", () => {
        this.#open.delete(each);
        (each === socket ? server : socket).destroy();
      });
    }
    socket.on("data", (data) => {
      const text = data.toString("latin1");
      this.#requests.push(text);
      // The server refuses a host name that is not its own.
      server.write(Buffer.from(text.replaceAll(new URL(this.url).host, this.target.host), "latin1"));
    });
    server.on("data", (data) => socket.write(data));
  }
}
