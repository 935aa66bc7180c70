// A style sheet that a module takes as its text: package.json tells esbuild so.

declare module "*.css" {
  const text: string;
  export default text;
}
