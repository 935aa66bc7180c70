// The lessons of the course, which a card of the launcher opens: a kernel of the folder copies them there.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { InputDialog, Notification } from "@jupyterlab/apputils";
import type { KernelMessage, ServiceManager } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

const LIST = `import json, pathlib
from kernelab.teach import lessons as course
found = course.lessons()
print(json.dumps({"names": [path.name for path in found.values()], "titles": [course.title(course.read(path)) for path in found.values()]}))`;
const COPY = (number: number) => `if not pathlib.Path(list(found.values())[${number}].name).exists():
    course.copied(list(found.values())[${number}], pathlib.Path(), "lesson")`;

/** Let a reader choose a lesson, and open it in a folder; one that is there stays as it is. */
export async function openLesson(app: JupyterFrontEnd, folder: string, trans: TranslationBundle): Promise<void> {
  const { sessions, kernelspecs } = app.serviceManager as ServiceManager;
  await kernelspecs.ready;
  const path = [folder, ".lessons"].filter(Boolean).join("/");
  const session = await sessions.startNew({ path, name: "", type: "console", kernel: { name: kernelspecs.specs?.default } });
  const waiting = Notification.emit(trans.__("Looking for the lessons"), "in-progress", { autoClose: false });
  let said = "";
  const run = async (code: string) => {
    const asked = session.kernel!.requestExecute({ code, store_history: false });
    asked.onIOPub = ({ header, content }) => {
      if (header.msg_type === "stream") said += (content as KernelMessage.IStreamMsg["content"]).text;
    };
    return (await asked.done).content.status === "ok";
  };
  try {
    const isListed = await run(LIST).finally(() => Notification.dismiss(waiting));
    if (!isListed) {
      Notification.error(trans.__("This environment has no lessons: pip install kernelab"));
      return;
    }
    const { names, titles } = JSON.parse(said) as { names: string[]; titles: string[] };
    const { value } = await InputDialog.getItem({ title: trans.__("Open which lesson?"), items: titles });
    const number = titles.indexOf(value ?? "");
    if (number < 0) return;
    if (await run(COPY(number)))
      await app.commands.execute("docmanager:open", { path: [folder, names[number]!].filter(Boolean).join("/") });
    else Notification.error(trans.__("The lesson cannot be copied into this folder"));
  } finally {
    await session.shutdown();
    session.dispose();
  }
}
