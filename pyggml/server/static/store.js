// Storage of conversations: the browser's database, or memory if the browser has none.

const TABLE = "conversations";

export class Store {
  #database = null;
  #memory = new Map();
  #others = null;

  /** Open the storage. `onChange(id)` is called for changes in other tabs. */
  static async open(onChange) {
    const store = new Store();
    // A server mounted at another path has its own conversations.
    const name = `pyggml ${new URL(document.baseURI).pathname}`;
    try {
      const opening = indexedDB.open(name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: "id" });
      store.#database = await result(opening);
      store.#others = new BroadcastChannel(name);
      store.#others.onmessage = ({ data }) => onChange(data);
    } catch {
      // A private window, or storage is disabled.
    }
    return store;
  }

  /** True if the conversations are stored permanently. */
  get keeps() {
    return this.#database !== null;
  }

  /** All conversations, the latest first. */
  async all() {
    const found = this.keeps ? await result(this.#table("readonly").getAll()) : [...this.#memory.values()];
    return found.sort((a, b) => b.changed - a.changed);
  }

  async get(id) {
    return this.keeps ? await result(this.#table("readonly").get(id)) : this.#memory.get(id);
  }

  /** Throws QuotaExceededError if the storage is full. */
  async put(conversation) {
    if (this.keeps) await this.#write((table) => table.put(conversation), conversation.id);
    else this.#memory.set(conversation.id, conversation);
  }

  async remove(id) {
    if (this.keeps) await this.#write((table) => table.delete(id), id);
    else this.#memory.delete(id);
  }

  #table(mode) {
    return this.#database.transaction(TABLE, mode).objectStore(TABLE);
  }

  async #write(change, id) {
    const table = this.#table("readwrite");
    await new Promise((resolve, reject) => {
      // A full storage is only reported at the end of the transaction.
      table.transaction.oncomplete = resolve;
      table.transaction.onabort = () => reject(table.transaction.error);
      change(table);
    });
    this.#others.postMessage(id);
  }
}

function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
