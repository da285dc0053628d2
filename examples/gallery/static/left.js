// Uploads that outlive the page. The server is queried each time for what is stored, so only
// the file and the object's id have to be kept: IndexedDB keeps both across a reload.
const database = new Promise((resolve, reject) => {
  const open = indexedDB.open("gallery", 1)
  open.onupgradeneeded = () => open.result.createObjectStore("uploads", { keyPath: "id" })
  open.onsuccess = () => resolve(open.result)
  open.onerror = () => reject(open.error)
})

const store = async (mode, act) => {
  const transaction = (await database).transaction("uploads", mode)
  const request = act(transaction.objectStore("uploads"))
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request.result)
    transaction.onerror = transaction.onabort = () => reject(transaction.error)
  })
}

export const keep = (upload) => store("readwrite", (s) => s.put(upload))
export const forget = (id) => store("readwrite", (s) => s.delete(id))

// left lists the uploads of a user that an earlier page began.
export const left = async (user) => (await store("readonly", (s) => s.getAll())).filter((u) => u.user === user)
